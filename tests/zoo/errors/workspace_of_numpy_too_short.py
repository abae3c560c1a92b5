# /// zoo
# task = "smooth"
# dsl = "cpp"
# expect = "correct"
# signature = "out-of-bounds"
# story = """
# The same with a workspace of NumPy's."""
# detector = "In checked calls what NumPy allocates ends at a page that cannot be touched."
# ///
import numpy as np
import torch
import tvm_ffi.cpp

CODE = r"""
void smooth(tvm::ffi::TensorView x, tvm::ffi::TensorView row, tvm::ffi::TensorView y) {
  long M = y.size(0), N = y.size(1);
  const float* from = static_cast<const float*>(x.data_ptr());
  float* to = static_cast<float*>(y.data_ptr());
  float* wide = static_cast<float*>(row.data_ptr());
  for (long i = 0; i < M; i++, from += N, to += N) {
    wide[0] = wide[N + 1] = 0.0f;
    for (long j = 0; j < N; j++) wide[j + 1] = from[j];
    for (long j = 0; j < N; j++) to[j] = wide[j + 1] + 0.5f * (wide[j] + wide[j + 2]);
  }
}
"""
lib = tvm_ffi.cpp.load_inline(name="smooth", cpp_sources=CODE, functions="smooth", extra_cflags=["-O2"])


def kernel(x):
    x = x.contiguous()
    y = torch.empty(x.shape)
    row = torch.from_numpy(np.empty(x.shape[1] + 1, np.float32))
    lib.smooth(x, row, y)
    return y
