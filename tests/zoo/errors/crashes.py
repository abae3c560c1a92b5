# /// zoo
# task = "relu"
# dsl = "cpp"
# expect = "smoke"
# story = "Writes through a null pointer."
# detector = "The worker's end is noticed, and its signal named."
# ///
import torch
import tvm_ffi.cpp

CODE = r"""
#include <cmath>
void relu(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {
  const float* X = static_cast<const float*>(x.data_ptr());
  float* Y = static_cast<float*>(y.data_ptr());
  const int64_t M = x.size(0), N = x.size(1);
  float* scratch = nullptr;
  for (int64_t i = 0; i < M * N; ++i) scratch[i] = X[i];
  for (int64_t i = 0; i < M * N; ++i) Y[i] = scratch[i] < 0 ? 0 : scratch[i];
}
"""
lib = tvm_ffi.cpp.load_inline(name="relu", cpp_sources=CODE, functions="relu", extra_cflags=["-O2"])


def kernel(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    lib.relu(x, y)
    return y
