# /// zoo
# task = "layer_norm_model"
# dsl = "cpp"
# story = """
# Keeps a buffer beside the reference's parameters, so that its state has one name more than the reference's."""
# ///
import ctypes
import os
import subprocess

import torch

CODE = r"""
#include <math.h>
void norm(const float* x, const float* w, const float* b, float* y, long M, long N, float eps) {
  for (long i = 0; i < M; i++, x += N, y += N) {
    double s = 0, q = 0;
    for (long j = 0; j < N; j++) s += x[j];
    s /= N;
    for (long j = 0; j < N; j++) q += (x[j] - s) * (x[j] - s);
    float r = 1 / sqrt(q / N + eps);
    for (long j = 0; j < N; j++) y[j] = (float)(x[j] - s) * r * w[j] + b[j];
  }
}
"""
folder = os.environ["TMPDIR"]
with open(f"{folder}/own.c", "w") as file:
    file.write(CODE)
flags = ["-O3", "-shared", "-fPIC", "-lm"]
subprocess.run(["gcc", f"{folder}/own.c", "-o", f"{folder}/own.so", *flags], check=True)
own = ctypes.CDLL(f"{folder}/own.so")
P, L = ctypes.c_void_p, ctypes.c_long

own.norm.argtypes = [P, P, P, P, L, L, ctypes.c_float]


class ModelNew(torch.nn.Module):
    def __init__(self, n):
        super().__init__()
        self.ln = torch.nn.LayerNorm(n)
        self.register_buffer("scratch", torch.zeros(n))

    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        w, b = self.ln.weight, self.ln.bias
        own.norm(x.data_ptr(), w.data_ptr(), b.data_ptr(), out.data_ptr(), x.shape[0], x.shape[1], self.ln.eps)
        return out
