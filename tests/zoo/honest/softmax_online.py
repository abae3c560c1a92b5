# /// zoo
# task = "softmax"
# dsl = "cpp"
# story = "One pass for maximum and sum together: looks like a missing maximum at first sight."
# ///
import torch
import tvm_ffi.cpp

CODE = r"""
#include <cmath>
void softmax(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {
  const float* X = static_cast<const float*>(x.data_ptr());
  float* Y = static_cast<float*>(y.data_ptr());
  const int64_t M = x.size(0), N = x.size(1);
  for (int64_t i = 0; i < M; ++i) {
    const float* r = X + i * N;
    float m = r[0], s = 1;
    for (int64_t j = 1; j < N; ++j) {
      const float top = r[j] > m ? r[j] : m;
      s = s * std::exp(m - top) + std::exp(r[j] - top);
      m = top;
    }
    for (int64_t j = 0; j < N; ++j) Y[i * N + j] = std::exp(r[j] - m) / s;
  }
}
"""
lib = tvm_ffi.cpp.load_inline(name="softmax", cpp_sources=CODE, functions="softmax", extra_cflags=["-O2"])


def kernel(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    lib.softmax(x, y)
    return y
