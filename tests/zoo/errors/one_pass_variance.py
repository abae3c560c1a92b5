# /// zoo
# task = "variance"
# dsl = "cpp"
# expect = "correct"
# story = "E[x^2] - E[x]^2: one pass over memory, and nothing is left where the mean is large."
# detector = "Inputs with a large mean."
# ///
import torch
import tvm_ffi.cpp

CODE = r"""
#include <cmath>
void variance(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {
  const float* X = static_cast<const float*>(x.data_ptr());
  float* Y = static_cast<float*>(y.data_ptr());
  const int64_t M = x.size(0), N = x.size(1);
  for (int64_t i = 0; i < M; ++i) {
    float s = 0, q = 0;
    for (int64_t j = 0; j < N; ++j) s += X[i * N + j], q += X[i * N + j] * X[i * N + j];
    Y[i] = (q - s * s / N) / (N - 1);
  }
}
"""
lib = tvm_ffi.cpp.load_inline(name="variance", cpp_sources=CODE, functions="variance", extra_cflags=["-O2"])


def kernel(x):
    y = torch.empty(x.shape[0])
    lib.variance(x.contiguous(), y)
    return y
