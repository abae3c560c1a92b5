# /// zoo
# task = "relu"
# dsl = "cpp"
# catalogue = [49]
# expect = "smoke"
# signature = "edge-tile"
# story = """
# Rounds the length up to whole vectors and forgets that the last one is not full. The allocator's padding hides it."""
# detector = "Guard zones of poison round every output."
# ///
import torch
import tvm_ffi.cpp

CODE = r"""
#include <cmath>
void relu(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {
  const float* X = static_cast<const float*>(x.data_ptr());
  float* Y = static_cast<float*>(y.data_ptr());
  const int64_t M = x.size(0), N = x.size(1);
  // whole vectors of sixteen only, and the rest rounded up
  for (int64_t i = 0; i < (M * N + 15) / 16 * 16; ++i) Y[i] = X[i] < 0 ? 0 : X[i];
}
"""
lib = tvm_ffi.cpp.load_inline(name="relu", cpp_sources=CODE, functions="relu", extra_cflags=["-O2"])


def kernel(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    lib.relu(x, y)
    return y
