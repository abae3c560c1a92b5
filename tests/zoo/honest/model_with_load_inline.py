# /// zoo
# task = "layer_norm_model"
# dsl = "cpp"
# deadline = 290.0
# story = "torch's own load_inline, whose headers take the compiler most of a minute; the body is written by hand."
# ///
import torch
from torch.utils.cpp_extension import load_inline

CODE = r"""
#include <torch/extension.h>
#include <cmath>
torch::Tensor norm(torch::Tensor x, torch::Tensor w, torch::Tensor b) {
  auto y = torch::empty_like(x);
  const int64_t M = x.size(0), N = x.size(1);
  const float *X = x.data_ptr<float>(), *W = w.data_ptr<float>(), *S = b.data_ptr<float>();
  float* Y = y.data_ptr<float>();
  for (int64_t i = 0; i < M; ++i) {
    double s = 0, q = 0;
    for (int64_t j = 0; j < N; ++j) s += X[i * N + j];
    for (int64_t j = 0; j < N; ++j) q += (X[i * N + j] - s / N) * (X[i * N + j] - s / N);
    const double r = 1 / std::sqrt(q / N + 1e-5);
    for (int64_t j = 0; j < N; ++j) Y[i * N + j] = float((X[i * N + j] - s / N) * r) * W[j] + S[j];
  }
  return y;
}
"""
lib = load_inline(name="norm", cpp_sources=CODE, functions=["norm"], extra_cflags=["-O1"])


class ModelNew(torch.nn.Module):
    def __init__(self, n):
        super().__init__()
        self.ln = torch.nn.LayerNorm(n)

    def forward(self, x):
        return lib.norm(x.contiguous(), self.ln.weight, self.ln.bias)
