# /// zoo
# task = "rms_norm"
# dsl = "cpp"
# story = "Sums in vector lanes, so rounds otherwise than the reference."
# ///
import torch
import tvm_ffi.cpp

CODE = r"""
#include <cmath>
void rms(tvm::ffi::TensorView x, tvm::ffi::TensorView w, tvm::ffi::TensorView y) {
  const float* X = static_cast<const float*>(x.data_ptr());
  float* Y = static_cast<float*>(y.data_ptr());
  const int64_t M = x.size(0), N = x.size(1);
  const float* W = static_cast<const float*>(w.data_ptr());
  for (int64_t i = 0; i < M; ++i) {
    float s = 0;
#pragma omp simd reduction(+ : s)
    for (int64_t j = 0; j < N; ++j) s += X[i * N + j] * X[i * N + j];
    const float r = 1 / std::sqrt(s / N + 1e-6f);
    for (int64_t j = 0; j < N; ++j) Y[i * N + j] = X[i * N + j] * r * W[j];
  }
}
"""
lib = tvm_ffi.cpp.load_inline(
    name="rms",
    cpp_sources=CODE,
    functions="rms",
    extra_cflags=["-O3", "-march=native", "-fopenmp"],
    extra_ldflags=["-fopenmp"],
)


def kernel(x, w):
    x = x.contiguous()
    y = torch.empty_like(x)
    lib.rms(x, w.contiguous(), y)
    return y
