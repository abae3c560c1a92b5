# /// zoo
# task = "relu_special"
# dsl = "cpp"
# catalogue = [52]
# expect = "correct"
# story = "A comparison with NaN is false, so NaN becomes zero."
# detector = "Non-finite values stand where the reference has them."
# ///
import torch
import tvm_ffi.cpp

CODE = r"""
#include <cmath>
void relu(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {
  const float* X = static_cast<const float*>(x.data_ptr());
  float* Y = static_cast<float*>(y.data_ptr());
  const int64_t M = x.size(0), N = x.size(1);
  for (int64_t i = 0; i < M * N; ++i) Y[i] = X[i] > 0 ? X[i] : 0;
}
"""
lib = tvm_ffi.cpp.load_inline(name="relu", cpp_sources=CODE, functions="relu", extra_cflags=["-O2"])


def kernel(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    lib.relu(x, y)
    return y
