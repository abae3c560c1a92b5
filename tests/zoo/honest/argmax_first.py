# /// zoo
# task = "argmax"
# dsl = "cpp"
# story = "The first of equals, as the reference breaks ties."
# ///
import torch
import tvm_ffi.cpp

CODE = r"""
#include <cmath>
void argmax(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {
  const float* X = static_cast<const float*>(x.data_ptr());
  int64_t* Y = static_cast<int64_t*>(y.data_ptr());
  const int64_t M = x.size(0), N = x.size(1);
  for (int64_t i = 0; i < M; ++i) {
    int64_t best = 0;
    for (int64_t j = 1; j < N; ++j)
      if (X[i * N + j] > X[i * N + best]) best = j;
    Y[i] = best;
  }
}
"""
lib = tvm_ffi.cpp.load_inline(name="argmax", cpp_sources=CODE, functions="argmax", extra_cflags=["-O2"])


def kernel(x):
    y = torch.empty(x.shape[0], dtype=torch.int64)
    lib.argmax(x.contiguous(), y)
    return y
