# /// zoo
# task = "smooth"
# dsl = "cpp"
# expect = "correct"
# story = """
# A vector has room for a row and one of its two borders. What lies behind it is mostly zero, as the border is."""
# detector = "In checked calls what the kernel's own code allocates ends at a page that cannot be touched."
# ///
import torch
import tvm_ffi.cpp

CODE = r"""
#include <vector>
void smooth(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {
  long M = y.size(0), N = y.size(1);
  const float* from = static_cast<const float*>(x.data_ptr());
  float* to = static_cast<float*>(y.data_ptr());
  std::vector<float> row(N + 1, 0.0f);
  const float* wide = row.data();
  for (long i = 0; i < M; i++, from += N, to += N) {
    for (long j = 0; j < N; j++) row[j + 1] = from[j];
    for (long j = 0; j < N; j++) to[j] = wide[j + 1] + 0.5f * (wide[j] + wide[j + 2]);
  }
}
"""
lib = tvm_ffi.cpp.load_inline(name="smooth", cpp_sources=CODE, functions="smooth", extra_cflags=["-O2"])


def kernel(x):
    x = x.contiguous()
    y = torch.empty(x.shape)
    lib.smooth(x, y)
    return y
