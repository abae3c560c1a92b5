# /// zoo
# task = "cumsum"
# dsl = "cpp"
# expect = "correct"
# story = "Writes the sum before it adds."
# detector = "Comparison; the signature is a shift by one where the shape allows to see it."
# ///
import torch
import tvm_ffi.cpp

CODE = r"""
#include <cmath>
void cumsum(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {
  const float* X = static_cast<const float*>(x.data_ptr());
  float* Y = static_cast<float*>(y.data_ptr());
  const int64_t M = x.size(0), N = x.size(1);
  for (int64_t i = 0; i < M; ++i) {
    double s = 0;
    for (int64_t j = 0; j < N; ++j) Y[i * N + j] = float(s), s += X[i * N + j];
  }
}
"""
lib = tvm_ffi.cpp.load_inline(name="cumsum", cpp_sources=CODE, functions="cumsum", extra_cflags=["-O2"])


def kernel(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    lib.cumsum(x, y)
    return y
