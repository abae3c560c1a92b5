# /// zoo
# task = "row_sum"
# dsl = "cpp"
# expect = "correct"
# story = "The workspace is zeroed once, at load time: the first call is right, the second adds to it."
# detector = "Every case is a call to the same process."
# ///
import torch
import tvm_ffi.cpp

CODE = r"""
#include <cmath>
static float total[65536];
void row_sum(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {
  const float* X = static_cast<const float*>(x.data_ptr());
  float* Y = static_cast<float*>(y.data_ptr());
  const int64_t M = x.size(0), N = x.size(1);
  for (int64_t i = 0; i < M; ++i) {
    for (int64_t j = 0; j < N; ++j) total[i] += X[i * N + j];
    Y[i] = total[i];
  }
}
"""
lib = tvm_ffi.cpp.load_inline(name="row_sum", cpp_sources=CODE, functions="row_sum", extra_cflags=["-O2"])


def kernel(x):
    y = torch.empty(x.shape[0])
    lib.row_sum(x.contiguous(), y)
    return y
