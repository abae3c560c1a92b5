# /// zoo
# task = "turned"
# dsl = "cpp"
# story = "Turns matrices tile by tile with code of its own, after a copy of inputs that have gaps."
# ///
import torch
import tvm_ffi.cpp

CODE = r"""
#include <algorithm>
void turn(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {
  long B = x.size(0), M = x.size(1), N = x.size(2);
  const float* from = static_cast<const float*>(x.data_ptr());
  float* to = static_cast<float*>(y.data_ptr());
  for (long b = 0; b < B; b++, from += M * N, to += M * N)
    for (long i = 0; i < M; i += 16) for (long j = 0; j < N; j += 16)
      for (long p = j; p < std::min(j + 16, N); p++) for (long q = i; q < std::min(i + 16, M); q++)
        to[p * M + q] = from[q * N + p];
}
"""
lib = tvm_ffi.cpp.load_inline(name="turn", cpp_sources=CODE, functions="turn", extra_cflags=["-O2"])


def kernel(x):
    x = x.contiguous()
    y = torch.empty(x.shape[0], x.shape[2], x.shape[1])
    lib.turn(x, y)
    return y
