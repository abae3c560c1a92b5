# /// zoo
# task = "smooth"
# dsl = "cpp"
# story = "The framework pads the input, as a kernel may prepare its arguments; code of its own computes."
# ///
import torch
import tvm_ffi.cpp

CODE = r"""
void smooth(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {
  long M = y.size(0), N = y.size(1);
  const float* from = static_cast<const float*>(x.data_ptr());
  float* to = static_cast<float*>(y.data_ptr());
  for (long i = 0; i < M; i++, from += N + 2, to += N)
    for (long j = 0; j < N; j++) to[j] = from[j + 1] + 0.5f * (from[j] + from[j + 2]);
}
"""
lib = tvm_ffi.cpp.load_inline(name="smooth", cpp_sources=CODE, functions="smooth", extra_cflags=["-O2"])


def kernel(x):
    y = torch.empty(x.shape)
    lib.smooth(torch.nn.functional.pad(x, (1, 1)), y)
    return y
