# /// zoo
# task = "row_sum"
# dsl = "cpp"
# story = "Adds in halves, recursively."
# ///
import torch
import tvm_ffi.cpp

CODE = r"""
#include <cmath>
static float add(const float* x, int64_t n) {
  if (n > 64) return add(x, n / 2) + add(x + n / 2, n - n / 2);
  float s = 0;
  for (int64_t j = 0; j < n; ++j) s += x[j];
  return s;
}
void row_sum(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {
  const float* X = static_cast<const float*>(x.data_ptr());
  float* Y = static_cast<float*>(y.data_ptr());
  const int64_t M = x.size(0), N = x.size(1);
  for (int64_t i = 0; i < M; ++i) Y[i] = add(X + i * N, N);
}
"""
lib = tvm_ffi.cpp.load_inline(name="row_sum", cpp_sources=CODE, functions="row_sum", extra_cflags=["-O2"])


def kernel(x):
    y = torch.empty(x.shape[0])
    lib.row_sum(x.contiguous(), y)
    return y
