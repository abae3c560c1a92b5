# /// zoo
# task = "relu"
# dsl = "cpp"
# catalogue = [11]
# story = "Prints a line in its first call, and has a counter for it."
# ///
import logging
import sys

import torch
import tvm_ffi.cpp

CODE = r"""
void relu(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {
  const float* X = static_cast<const float*>(x.data_ptr());
  float* Y = static_cast<float*>(y.data_ptr());
  const int64_t M = x.size(0), N = x.size(1);
  for (int64_t i = 0; i < M * N; ++i) Y[i] = X[i] < 0 ? 0 : X[i];
}
"""
lib = tvm_ffi.cpp.load_inline(name="relu", cpp_sources=CODE, functions="relu", extra_cflags=["-O2"])
told = []


def kernel(x):
    if not told:
        told.append(True)
        print("relu: first call", tuple(x.shape), file=sys.stderr)
        logging.getLogger("relu").info("first call")
    x = x.contiguous()
    y = torch.empty_like(x)
    lib.relu(x, y)
    return y
