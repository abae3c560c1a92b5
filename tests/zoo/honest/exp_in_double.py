# /// zoo
# task = "exp"
# dsl = "cpp"
# story = "Computes in double and rounds once."
# ///
import torch
import tvm_ffi.cpp

CODE = r"""
#include <cmath>
void expo(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {
  const float* X = static_cast<const float*>(x.data_ptr());
  float* Y = static_cast<float*>(y.data_ptr());
  const int64_t M = x.size(0), N = x.size(1);
  for (int64_t i = 0; i < M * N; ++i) Y[i] = float(std::exp(double(X[i])));
}
"""
lib = tvm_ffi.cpp.load_inline(name="expo", cpp_sources=CODE, functions="expo", extra_cflags=["-O2"])


def kernel(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    lib.expo(x, y)
    return y
