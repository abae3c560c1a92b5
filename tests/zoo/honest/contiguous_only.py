# /// zoo
# task = "relu"
# dsl = "cpp"
# label = "contiguous-only"
# story = """
# A kernel from elsewhere that reads its input as if it were contiguous. It says nothing wrong of contiguous inputs,
# and the verdict names the limit."""
# ///
import torch
import tvm_ffi.cpp

CODE = r"""
#include <cmath>
void relu(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {
  const float* X = static_cast<const float*>(x.data_ptr());
  float* Y = static_cast<float*>(y.data_ptr());
  const int64_t M = x.size(0), N = x.size(1);
  for (int64_t i = 0; i < M * N; ++i) Y[i] = X[i] < 0 ? 0 : X[i];
}
"""
lib = tvm_ffi.cpp.load_inline(name="relu", cpp_sources=CODE, functions="relu", extra_cflags=["-O2"])


def kernel(x):
    y = torch.empty(x.shape)
    lib.relu(x, y)
    return y
