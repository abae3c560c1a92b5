# /// zoo
# task = "smooth"
# dsl = "cpp"
# expect = "robust"
# signature = "out-of-bounds"
# story = """
# Loads the element before the first one of a row and then drops it. At the first row it reads before the beginning
# of the input, where memory usually lies."""
# detector = "An input that begins behind a page that cannot be read."
# ///
import torch
import tvm_ffi.cpp

CODE = r"""
void smooth(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {
  long M = y.size(0), N = y.size(1);
  const float* from = static_cast<const float*>(x.data_ptr());
  float* to = static_cast<float*>(y.data_ptr());
  for (long i = 0; i < M; i++, from += N, to += N)
    for (long j = 0; j < N; j++) {
      volatile const float* left = from + j - 1;
      float before = *left, after = j + 1 < N ? from[j + 1] : 0.0f;
      if (j == 0) before = 0.0f;
      to[j] = from[j] + 0.5f * (before + after);
    }
}
"""
lib = tvm_ffi.cpp.load_inline(name="smooth", cpp_sources=CODE, functions="smooth", extra_cflags=["-O2"])


def kernel(x):
    x = x.contiguous()
    y = torch.empty(x.shape)
    lib.smooth(x, y)
    return y
