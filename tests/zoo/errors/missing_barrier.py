# /// zoo
# task = "row_sum"
# dsl = "cpp"
# catalogue = [48]
# expect = "correct"
# threads = 4
# story = "Adds the threads' parts before all of them are written."
# detector = "Comparison, call after call."
# ///
import torch
import tvm_ffi.cpp

CODE = r"""
#include <omp.h>
static float part[4][65536];
void row_sum(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {
  const float* X = static_cast<const float*>(x.data_ptr());
  float* Y = static_cast<float*>(y.data_ptr());
  const int64_t M = x.size(0), N = x.size(1);
#pragma omp parallel num_threads(4)
  {
    const int t = omp_get_thread_num();
    for (int64_t i = 0; i < M; ++i) {
      part[t][i] = 0;
      for (int64_t j = t; j < N; j += 4) part[t][i] += X[i * N + j];
    }
    // no barrier: the parts of the others may not be there yet
    for (int64_t i = t; i < M; i += 4) Y[i] = part[0][i] + part[1][i] + part[2][i] + part[3][i];
  }
}
"""
lib = tvm_ffi.cpp.load_inline(
    name="row_sum", cpp_sources=CODE, functions="row_sum", extra_cflags=["-O1", "-fopenmp"], extra_ldflags=["-fopenmp"]
)


def kernel(x):
    y = torch.empty(x.shape[0])
    lib.row_sum(x.contiguous(), y)
    return y
