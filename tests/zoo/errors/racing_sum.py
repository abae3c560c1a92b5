# /// zoo
# task = "column_sum"
# dsl = "cpp"
# catalogue = [48]
# expect = "robust"
# threads = 4
# story = "Threads add to the same places without telling each other. On one core, or with little work, it is right."
# detector = "Comparison; a second call that differs makes it a race."
# ///
import torch
import tvm_ffi.cpp

CODE = r"""
#include <cmath>
void column_sum(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {
  const float* X = static_cast<const float*>(x.data_ptr());
  float* Y = static_cast<float*>(y.data_ptr());
  const int64_t M = x.size(0), N = x.size(1);
#pragma omp parallel for num_threads(4)
  for (int64_t i = 0; i < M; ++i)
    for (int64_t j = 0; j < N; ++j) Y[j] += X[i * N + j];
}
"""
lib = tvm_ffi.cpp.load_inline(
    name="column_sum",
    cpp_sources=CODE,
    functions="column_sum",
    extra_cflags=["-O1", "-fopenmp"],
    extra_ldflags=["-fopenmp"],
)


def kernel(x):
    y = torch.zeros(x.shape[1])
    lib.column_sum(x.contiguous(), y)
    return y
