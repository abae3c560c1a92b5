# /// zoo
# task = "smooth"
# dsl = "cpp"
# expect = "smoke"
# signature = "out-of-bounds"
# story = """
# Keeps a pointer into a vector that grows: the elements are read where they lay before, which is mostly not yet in use
# again."""
# detector = "In checked calls memory that the kernel's own code has freed cannot be touched."
# ///
import torch
import tvm_ffi.cpp

CODE = r"""
#include <vector>
void smooth(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {
  long M = y.size(0), N = y.size(1);
  const float* from = static_cast<const float*>(x.data_ptr());
  float* to = static_cast<float*>(y.data_ptr());
  for (long i = 0; i < M; i++, from += N, to += N) {
    std::vector<float> row(N + 1, 0.0f);
    const float* wide = row.data();
    for (long j = 0; j < N; j++) row[j + 1] = from[j];
    row.push_back(0.0f);
    for (long j = 0; j < N; j++) to[j] = wide[j + 1] + 0.5f * (wide[j] + (j + 1 < N ? wide[j + 2] : 0.0f));
  }
}
"""
lib = tvm_ffi.cpp.load_inline(name="smooth", cpp_sources=CODE, functions="smooth", extra_cflags=["-O2"])


def kernel(x):
    x = x.contiguous()
    y = torch.empty(x.shape)
    lib.smooth(x, y)
    return y
