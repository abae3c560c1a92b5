# /// zoo
# task = "relu"
# dsl = "cpp"
# story = "Takes any strides instead of asking for contiguous inputs."
# ///
import torch
import tvm_ffi.cpp

CODE = r"""
#include <cmath>
void relu(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {
  const float* X = static_cast<const float*>(x.data_ptr());
  float* Y = static_cast<float*>(y.data_ptr());
  const int64_t M = x.size(0), N = x.size(1), sm = x.stride(0), sn = x.stride(1);
  for (int64_t i = 0; i < M; ++i)
    for (int64_t j = 0; j < N; ++j) {
      const float v = X[i * sm + j * sn];
      Y[i * N + j] = v < 0 ? 0 : v;
    }
}
"""
lib = tvm_ffi.cpp.load_inline(name="relu", cpp_sources=CODE, functions="relu", extra_cflags=["-O2"])


def kernel(x):
    y = torch.empty(x.shape)
    lib.relu(x, y)
    return y
