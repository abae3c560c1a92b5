# /// zoo
# task = "gelu"
# dsl = "cpp"
# expect = "correct"
# story = "The approximation by tanh, where the task has the error function: 5e-4 apart, which many tolerances take."
# detector = "Error against float64."
# ///
import torch
import tvm_ffi.cpp

CODE = r"""
#include <cmath>
void gelu(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {
  const float* X = static_cast<const float*>(x.data_ptr());
  float* Y = static_cast<float*>(y.data_ptr());
  const int64_t M = x.size(0), N = x.size(1);
  for (int64_t i = 0; i < M * N; ++i) {
    const float v = X[i];
    Y[i] = 0.5f * v * (1 + std::tanh(0.7978845608f * (v + 0.044715f * v * v * v)));
  }
}
"""
lib = tvm_ffi.cpp.load_inline(name="gelu", cpp_sources=CODE, functions="gelu", extra_cflags=["-O2"])


def kernel(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    lib.gelu(x, y)
    return y
