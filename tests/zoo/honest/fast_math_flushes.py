# /// zoo
# task = "relu"
# dsl = "cpp"
# label = "denormals"
# story = """
# Built with -ffast-math, whose start-up code has the loading thread flush denormals to zero: told, and restored before
# each call."""
# ///
import torch
import tvm_ffi.cpp

CODE = r"""
#include <immintrin.h>
void relu(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {
  long n = x.size(0) * x.size(1);
  const float* from = static_cast<const float*>(x.data_ptr());
  float* to = static_cast<float*>(y.data_ptr());
  _mm_setcsr(_mm_getcsr() | 0x8040);
  for (long i = 0; i < n; i++) to[i] = from[i] > 0 ? from[i] * 1.0f : 0.0f;
}
"""
lib = tvm_ffi.cpp.load_inline(name="flushes", cpp_sources=CODE, functions="relu", extra_cflags=["-O3", "-ffast-math"])


def kernel(x):
    x = x.contiguous()
    out = torch.empty(x.shape)
    lib.relu(x, out)
    return out
