# /// zoo
# task = "smooth"
# dsl = "cpp"
# story = "Looks whether there is a neighbour before it loads it."
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
      float before = j > 0 ? from[j - 1] : 0.0f, after = j + 1 < N ? from[j + 1] : 0.0f;
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
