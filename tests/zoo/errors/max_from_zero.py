# /// zoo
# task = "row_max"
# dsl = "cpp"
# expect = "correct"
# story = "Begins the maximum at zero: right unless a whole row is negative."
# detector = "Shifted inputs and rows of one element."
# ///
import torch
import tvm_ffi.cpp

CODE = r"""
#include <cmath>
void row_max(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {
  const float* X = static_cast<const float*>(x.data_ptr());
  float* Y = static_cast<float*>(y.data_ptr());
  const int64_t M = x.size(0), N = x.size(1);
  for (int64_t i = 0; i < M; ++i) {
    float m = 0;
    for (int64_t j = 0; j < N; ++j) m = X[i * N + j] > m ? X[i * N + j] : m;
    Y[i] = m;
  }
}
"""
lib = tvm_ffi.cpp.load_inline(name="row_max", cpp_sources=CODE, functions="row_max", extra_cflags=["-O2"])


def kernel(x):
    y = torch.empty(x.shape[0])
    lib.row_max(x.contiguous(), y)
    return y
