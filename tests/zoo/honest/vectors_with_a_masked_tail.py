# /// zoo
# task = "relu"
# dsl = "cpp"
# story = """
# Vectors of eight with a scalar rest: it reads nothing behind the end."""
# ///
import torch
import tvm_ffi.cpp

CODE = r"""
#include <cstring>
void relu(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {
  long n = x.size(0) * x.size(1);
  const float* from = static_cast<const float*>(x.data_ptr());
  float* to = static_cast<float*>(y.data_ptr());
  typedef float v8 __attribute__((vector_size(32)));
  long i = 0;
  for (; i + 8 <= n; i += 8) {
    v8 v;
    std::memcpy(&v, from + i, 32);
    v = v < 0 ? v - v : v;
    std::memcpy(to + i, &v, 32);
  }
  for (; i < n; i++) to[i] = from[i] < 0 ? 0 : from[i];
}
"""
lib = tvm_ffi.cpp.load_inline(name="rest", cpp_sources=CODE, functions="relu", extra_cflags=["-O3", "-march=native"])


def kernel(x):
    x = x.contiguous()
    out = torch.empty(x.shape)
    lib.relu(x, out)
    return out
