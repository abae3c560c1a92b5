# /// zoo
# task = "relu"
# dsl = "cpp"
# catalogue = [49]
# expect = "correct"
# story = "The opposite: the vector loop ends early and nobody wrote the loop for the rest."
# detector = "Hidden sizes that are no multiples, over poisoned outputs."
# ///
import torch
import tvm_ffi.cpp

CODE = r"""
#include <cmath>
void relu(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {
  const float* X = static_cast<const float*>(x.data_ptr());
  float* Y = static_cast<float*>(y.data_ptr());
  const int64_t M = x.size(0), N = x.size(1);
  for (int64_t i = 0; i + 16 <= M * N; i += 16)
    for (int64_t k = 0; k < 16; ++k) Y[i + k] = X[i + k] < 0 ? 0 : X[i + k];
}
"""
lib = tvm_ffi.cpp.load_inline(name="relu", cpp_sources=CODE, functions="relu", extra_cflags=["-O2"])


def kernel(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    lib.relu(x, y)
    return y
