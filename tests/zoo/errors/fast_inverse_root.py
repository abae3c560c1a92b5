# /// zoo
# task = "rms_norm"
# dsl = "cpp"
# expect = "correct"
# story = "The famous inverse square root with one step of Newton: 2e-3 off."
# detector = "Error against float64."
# ///
import torch
import tvm_ffi.cpp

CODE = r"""
#include <cmath>
#include <cstring>
void rms(tvm::ffi::TensorView x, tvm::ffi::TensorView w, tvm::ffi::TensorView y) {
  const float* X = static_cast<const float*>(x.data_ptr());
  float* Y = static_cast<float*>(y.data_ptr());
  const int64_t M = x.size(0), N = x.size(1);
  const float* W = static_cast<const float*>(w.data_ptr());
  for (int64_t i = 0; i < M; ++i) {
    float s = 0;
    for (int64_t j = 0; j < N; ++j) s += X[i * N + j] * X[i * N + j];
    const float v = s / N + 1e-6f;
    int bits;
    memcpy(&bits, &v, 4);
    bits = 0x5f3759df - (bits >> 1);
    float r;
    memcpy(&r, &bits, 4);
    r *= 1.5f - 0.5f * v * r * r;
    for (int64_t j = 0; j < N; ++j) Y[i * N + j] = X[i * N + j] * r * W[j];
  }
}
"""
lib = tvm_ffi.cpp.load_inline(name="rms", cpp_sources=CODE, functions="rms", extra_cflags=["-O2"])


def kernel(x, w):
    x = x.contiguous()
    y = torch.empty_like(x)
    lib.rms(x, w.contiguous(), y)
    return y
