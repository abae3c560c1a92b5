# /// zoo
# task = "copy"
# dsl = "cpp"
# story = "Copies, in two halves."
# ///
import torch
import tvm_ffi.cpp

CODE = r"""
#include <cstring>
void copy(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {
  size_t bytes = x.numel() * 4, half = bytes / 8 * 4;
  std::memcpy(y.data_ptr(), x.data_ptr(), half);
  std::memcpy(static_cast<char*>(y.data_ptr()) + half, static_cast<char*>(x.data_ptr()) + half, bytes - half);
}
"""
lib = tvm_ffi.cpp.load_inline(name="halves", cpp_sources=CODE, functions="copy", extra_cflags=["-O2"])


def kernel(x):
    x = x.contiguous()
    out = torch.empty_like(x)
    lib.copy(x, out)
    return out
