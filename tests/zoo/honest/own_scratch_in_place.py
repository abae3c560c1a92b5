# /// zoo
# task = "cumsum"
# dsl = "cpp"
# story = "Copies first and works in place, in memory that is its own."
# ///
import torch
import tvm_ffi.cpp

CODE = r"""
#include <cstring>
void cumsum(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {
  const float* X = static_cast<const float*>(x.data_ptr());
  float* Y = static_cast<float*>(y.data_ptr());
  const int64_t M = x.size(0), N = x.size(1);
  memcpy(Y, X, M * N * 4);
  for (int64_t i = 0; i < M; ++i) {
    double s = 0;
    for (int64_t j = 0; j < N; ++j) Y[i * N + j] = float(s += Y[i * N + j]);
  }
}
"""
lib = tvm_ffi.cpp.load_inline(name="cumsum", cpp_sources=CODE, functions="cumsum", extra_cflags=["-O2"])


def kernel(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    lib.cumsum(x, y)
    return y
