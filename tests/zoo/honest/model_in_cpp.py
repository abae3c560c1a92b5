# /// zoo
# task = "layer_norm_model"
# dsl = "cpp"
# story = "Parameters under names of its own: they are handed over by order and shape."
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
    const double r = 1 / std::sqrt(q / N + 1e-5);
    for (int64_t j = 0; j < N; ++j) Y[i * N + j] = float((X[i * N + j] - s / N) * r) * W[j] + S[j];
  }
}
"""
lib = tvm_ffi.cpp.load_inline(name="norm", cpp_sources=CODE, functions="norm", extra_cflags=["-O2"])


class ModelNew(torch.nn.Module):
    def __init__(self, n):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(n))
        self.shift = torch.nn.Parameter(torch.zeros(n))

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        lib.norm(x, self.scale.detach(), self.shift.detach(), y)
        return y
