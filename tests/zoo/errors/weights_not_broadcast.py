# /// zoo
# task = "layer_norm"
# dsl = "cpp"
# expect = "correct"
# story = "Takes the scale by the row's number instead of the column's: invisible while all scales are one."
# detector = "Scales and shifts are drawn like other inputs."
# ///
import torch
import tvm_ffi.cpp

CODE = r"""
#include <cmath>
void norm(tvm::ffi::TensorView x, tvm::ffi::TensorView w, tvm::ffi::TensorView b, tvm::ffi::TensorView y) {
  const float* X = static_cast<const float*>(x.data_ptr());
  float* Y = static_cast<float*>(y.data_ptr());
  const int64_t M = x.size(0), N = x.size(1);
  const float* W = static_cast<const float*>(w.data_ptr());
  const float* S = static_cast<const float*>(b.data_ptr());
  for (int64_t i = 0; i < M; ++i) {
    double s = 0, q = 0;
    for (int64_t j = 0; j < N; ++j) s += X[i * N + j];
    for (int64_t j = 0; j < N; ++j) q += (X[i * N + j] - s / N) * (X[i * N + j] - s / N);
    const float r = float(1 / std::sqrt(q / N + 1e-5));
    for (int64_t j = 0; j < N; ++j) Y[i * N + j] = float(X[i * N + j] - s / N) * r * W[i % N] + S[i % N];
  }
}
"""
lib = tvm_ffi.cpp.load_inline(name="norm", cpp_sources=CODE, functions="norm", extra_cflags=["-O2"])


def kernel(x, w, b):
    x = x.contiguous()
    y = torch.empty_like(x)
    lib.norm(x, w.contiguous(), b.contiguous(), y)
    return y
