# /// zoo
# task = "softmax"
# dsl = "cpp"
# expect = "correct"
# story = "Normalises columns instead of rows."
# detector = "Comparison."
# ///
import torch
import tvm_ffi.cpp

CODE = r"""
#include <cmath>
void softmax(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {
  const float* X = static_cast<const float*>(x.data_ptr());
  float* Y = static_cast<float*>(y.data_ptr());
  const int64_t M = x.size(0), N = x.size(1);
  for (int64_t j = 0; j < N; ++j) {
    float m = -INFINITY, s = 0;
    for (int64_t i = 0; i < M; ++i) m = std::fmax(m, X[i * N + j]);
    for (int64_t i = 0; i < M; ++i) s += std::exp(X[i * N + j] - m);
    for (int64_t i = 0; i < M; ++i) Y[i * N + j] = std::exp(X[i * N + j] - m) / s;
  }
}
"""
lib = tvm_ffi.cpp.load_inline(name="softmax", cpp_sources=CODE, functions="softmax", extra_cflags=["-O2"])


def kernel(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    lib.softmax(x, y)
    return y
