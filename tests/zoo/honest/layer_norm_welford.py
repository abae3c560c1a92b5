# /// zoo
# task = "layer_norm"
# dsl = "cpp"
# story = "Mean and variance in one pass, by Welford's algorithm."
# ///
import torch
import tvm_ffi.cpp

CODE = r"""
#include <cmath>
void norm(tvm::ffi::TensorView x, tvm::ffi::TensorView w, tvm::ffi::TensorView b, tvm::ffi::TensorView y) {
  const float* X = static_cast<const float*>(x.data_ptr());
  float* Y = static_cast<float*>(y.data_ptr());
  const int64_t M = x.size(0), N = x.size(1);
  const float* W = static_cast<const float*>(w.data_ptr());
  const float* S = static_cast<const float*>(b.data_ptr());
  for (int64_t i = 0; i < M; ++i) {
    double mean = 0, m2 = 0;
    for (int64_t j = 0; j < N; ++j) {
      const double d = X[i * N + j] - mean;
      mean += d / (j + 1);
      m2 += d * (X[i * N + j] - mean);
    }
    const double r = 1 / std::sqrt(m2 / N + 1e-5);
    for (int64_t j = 0; j < N; ++j) Y[i * N + j] = float((X[i * N + j] - mean) * r) * W[j] + S[j];
  }
}
"""
lib = tvm_ffi.cpp.load_inline(name="norm", cpp_sources=CODE, functions="norm", extra_cflags=["-O2"])


def kernel(x, w, b):
    x = x.contiguous()
    y = torch.empty_like(x)
    lib.norm(x, w.contiguous(), b.contiguous(), y)
    return y
