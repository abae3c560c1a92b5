# /// zoo
# task = "relu"
# dsl = "cpp"
# catalogue = [51]
# expect = "correct"
# story = """
# The index overflows at 65536 elements, as a 32-bit one does at two thousand million: the small sibling of an error
# that only huge tensors show."""
# detector = "The declared size, over poisoned outputs."
# ///
import torch
import tvm_ffi.cpp

CODE = r"""
#include <cmath>
void relu(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {
  const float* X = static_cast<const float*>(x.data_ptr());
  float* Y = static_cast<float*>(y.data_ptr());
  const int64_t M = x.size(0), N = x.size(1);
  for (int64_t i = 0; i < M; ++i)
    for (int64_t j = 0; j < N; ++j) {
      const uint16_t at = uint16_t(i * N + j);
      Y[at] = X[at] < 0 ? 0 : X[at];
    }
}
"""
lib = tvm_ffi.cpp.load_inline(name="relu", cpp_sources=CODE, functions="relu", extra_cflags=["-O2"])


def kernel(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    lib.relu(x, y)
    return y
