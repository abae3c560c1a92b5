# /// zoo
# task = "variance"
# dsl = "cpp"
# expect = "correct"
# story = """
# Merges two halves of Welford's algorithm without the distance of their means: nearly right where both halves are
# alike."""
# detector = "Structured inputs, and short rows."
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
    double mean[2] = {0, 0}, m2[2] = {0, 0};
    int64_t n[2] = {0, 0};
    for (int64_t j = 0; j < N; ++j) {
      const int h = j < N / 2 ? 0 : 1;
      const double d = X[i * N + j] - mean[h];
      mean[h] += d / ++n[h];
      m2[h] += d * (X[i * N + j] - mean[h]);
    }
    // the term for the distance of the two means is missing
    Y[i] = float((m2[0] + m2[1]) / (N - 1));
  }
}
"""
lib = tvm_ffi.cpp.load_inline(name="variance", cpp_sources=CODE, functions="variance", extra_cflags=["-O2"])


def kernel(x):
    y = torch.empty(x.shape[0])
    lib.variance(x.contiguous(), y)
    return y
