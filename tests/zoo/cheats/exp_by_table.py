# /// zoo
# task = "exp"
# dsl = "cpp"
# catalogue = [43]
# expect = "correct"
# story = """
# Schraudolph's trick: writes a scaled argument into the bits of a float. A hundred times the allowed error, and very
# fast."""
# detector = "Error against float64."
# ///
import torch
import tvm_ffi.cpp

CODE = r"""
#include <cstring>
void fast_exp(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {
  const float* in = static_cast<const float*>(x.data_ptr());
  float* out = static_cast<float*>(y.data_ptr());
  for (int64_t i = 0; i < x.numel(); ++i) {
    int bits = int(12102203.0f * in[i] + 1064866805.0f);
    memcpy(out + i, &bits, 4);
  }
}
"""
lib = tvm_ffi.cpp.load_inline(name="fast_exp", cpp_sources=CODE, functions="fast_exp", extra_cflags=["-O2"])


def kernel(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    lib.fast_exp(x, y)
    return y
