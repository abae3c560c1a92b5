# /// zoo
# task = "row_sum"
# dsl = "cpp"
# story = "Adds to partial sums in memory that calloc has set to zero."
# ///
import torch
import tvm_ffi.cpp

CODE = r"""
#include <cstdlib>
void row_sum(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {
  long M = x.size(0), N = x.size(1);
  const float* from = static_cast<const float*>(x.data_ptr());
  float* to = static_cast<float*>(y.data_ptr());
  // fresh pages of the system are zero
  float* part = static_cast<float*>(calloc(M * 64 + 65536, 4));
  for (long i = 0; i < M; i++) {
    for (long j = 0; j < N; j++) part[i * 64 + j % 64] += from[i * N + j];
    to[i] = 0.0f;
    for (long j = 0; j < 64; j++) to[i] += part[i * 64 + j];
  }
  free(part);
}
"""
lib = tvm_ffi.cpp.load_inline(name="row_sum", cpp_sources=CODE, functions="row_sum", extra_cflags=["-O2"])


def kernel(x):
    x = x.contiguous()
    y = torch.empty(x.shape[0])
    lib.row_sum(x, y)
    return y
