# /// zoo
# task = "softmax"
# dsl = "cpp"
# story = "Maximum, exponentials, division."
# ///
import torch
import tvm_ffi.cpp

CODE = r"""
#include <cmath>
void softmax(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {
  const float* X = static_cast<const float*>(x.data_ptr());
  float* Y = static_cast<float*>(y.data_ptr());
  const int64_t M = x.size(0), N = x.size(1);
#pragma omp parallel for if (M * N > 32768)
  for (int64_t i = 0; i < M; ++i) {
    const float* r = X + i * N;
    float* o = Y + i * N;
    float m = -INFINITY, s = 0;
    for (int64_t j = 0; j < N; ++j) m = r[j] > m ? r[j] : m;
    for (int64_t j = 0; j < N; ++j) s += o[j] = std::exp(r[j] - m);
    for (int64_t j = 0; j < N; ++j) o[j] /= s;
  }
}
"""
lib = tvm_ffi.cpp.load_inline(
    name="softmax",
    cpp_sources=CODE,
    functions="softmax",
    extra_cflags=["-O3", "-march=native", "-fopenmp"],
    extra_ldflags=["-fopenmp"],
)


def kernel(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    lib.softmax(x, y)
    return y
