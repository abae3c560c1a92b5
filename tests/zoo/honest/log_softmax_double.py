# /// zoo
# task = "log_softmax"
# dsl = "cpp"
# story = "More exact than the reference: sums in double."
# ///
import torch
import tvm_ffi.cpp

CODE = r"""
#include <cmath>
void log_softmax(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {
  const float* X = static_cast<const float*>(x.data_ptr());
  float* Y = static_cast<float*>(y.data_ptr());
  const int64_t M = x.size(0), N = x.size(1);
  for (int64_t i = 0; i < M; ++i) {
    const float* r = X + i * N;
    double m = r[0], s = 0;
    for (int64_t j = 1; j < N; ++j) m = r[j] > m ? r[j] : m;
    for (int64_t j = 0; j < N; ++j) s += std::exp(r[j] - m);
    const double l = m + std::log(s);
    for (int64_t j = 0; j < N; ++j) Y[i * N + j] = float(r[j] - l);
  }
}
"""
lib = tvm_ffi.cpp.load_inline(name="log_softmax", cpp_sources=CODE, functions="log_softmax", extra_cflags=["-O2"])


def kernel(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    lib.log_softmax(x, y)
    return y
