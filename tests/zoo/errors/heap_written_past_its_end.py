# /// zoo
# task = "smooth"
# dsl = "cpp"
# expect = "smoke"
# signature = "out-of-bounds"
# story = """
# Memory of malloc has room for a row and one of its two borders; the other border is written behind it, over nothing
# that matters in this process."""
# detector = "In checked calls what the kernel's own code allocates ends at a page that cannot be touched."
# ///
import torch
import tvm_ffi.cpp

CODE = r"""
#include <cstdlib>
void smooth(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {
  long M = y.size(0), N = y.size(1);
  const float* from = static_cast<const float*>(x.data_ptr());
  float* to = static_cast<float*>(y.data_ptr());
  float* wide = static_cast<float*>(malloc((N + 1) * 4));
  for (long i = 0; i < M; i++, from += N, to += N) {
    wide[0] = wide[N + 1] = 0.0f;
    for (long j = 0; j < N; j++) wide[j + 1] = from[j];
    for (long j = 0; j < N; j++) to[j] = wide[j + 1] + 0.5f * (wide[j] + wide[j + 2]);
  }
  free(wide);
}
"""
lib = tvm_ffi.cpp.load_inline(name="smooth", cpp_sources=CODE, functions="smooth", extra_cflags=["-O2"])


def kernel(x):
    x = x.contiguous()
    y = torch.empty(x.shape)
    lib.smooth(x, y)
    return y
