# /// zoo
# task = "rms_norm"
# dsl = "cpp"
# catalogue = [60]
# story = """
# Runs the compiler itself and loads the library with ctypes: a subprocess, files and raw pointers, and nothing wrong
# with any of them."""
# ///
import ctypes
import os
import subprocess

import torch

CODE = r"""
#include <cmath>
extern "C" void rms(const float* x, const float* w, float* y, long M, long N) {
  for (long i = 0; i < M; i++) {
    float s = 0;
    for (long j = 0; j < N; j++) s += x[i * N + j] * x[i * N + j];
    const float r = 1.0f / std::sqrt(s / N + 1e-6f);
    for (long j = 0; j < N; j++) y[i * N + j] = x[i * N + j] * r * w[j];
  }
}
"""
folder = os.environ["TMPDIR"]
with open(folder + "/k.cpp", "w") as file:
    file.write(CODE)
subprocess.run(["g++", "-O2", "-shared", "-fPIC", folder + "/k.cpp", "-o", folder + "/k.so"], check=True)
lib = ctypes.CDLL(folder + "/k.so")
lib.rms.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_long] * 2


def kernel(x, w):
    x, w = x.contiguous(), w.contiguous()
    y = torch.empty_like(x)
    lib.rms(x.data_ptr(), w.data_ptr(), y.data_ptr(), x.shape[0], x.shape[1])
    return y
