# /// zoo
# task = "row_max"
# dsl = "cpp"
# catalogue = [49]
# expect = "correct"
# story = "Reads up to seven elements of the next row: no crash, and right for most rows."
# detector = "Hidden sizes; poison behind the last row."
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
    float m = X[i * N];
    for (int64_t j = 0; j < (N + 7) / 8 * 8; ++j) m = X[i * N + j] > m ? X[i * N + j] : m;
    Y[i] = m;
  }
}
"""
lib = tvm_ffi.cpp.load_inline(name="row_max", cpp_sources=CODE, functions="row_max", extra_cflags=["-O2"])


def kernel(x):
    y = torch.empty(x.shape[0])
    lib.row_max(x.contiguous(), y)
    return y
