# /// zoo
# task = "row_sum"
# dsl = "cpp"
# story = "A compensated sum."
# ///
import torch
import tvm_ffi.cpp

CODE = r"""
#include <cmath>
void row_sum(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {
  const float* X = static_cast<const float*>(x.data_ptr());
  float* Y = static_cast<float*>(y.data_ptr());
  const int64_t M = x.size(0), N = x.size(1);
  for (int64_t i = 0; i < M; ++i) {
    float s = 0, c = 0;
    for (int64_t j = 0; j < N; ++j) {
      const float v = X[i * N + j] - c, t = s + v;
      c = (t - s) - v;
      s = t;
    }
    Y[i] = s;
  }
}
"""
lib = tvm_ffi.cpp.load_inline(name="row_sum", cpp_sources=CODE, functions="row_sum", extra_cflags=["-O2"])


def kernel(x):
    y = torch.empty(x.shape[0])
    lib.row_sum(x.contiguous(), y)
    return y
