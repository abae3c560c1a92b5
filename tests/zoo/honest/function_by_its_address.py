# /// zoo
# task = "relu"
# dsl = "cpp"
# story = """
# Hands the address of one of its functions to another in each call, as a table of activations does."""
# ///
import ctypes
import os
import subprocess

import torch

CODE = r"""
void relu_row(const float* x, float* y, long n) {
  for (long i = 0; i < n; i++) y[i] = x[i] > 0 || x[i] != x[i] ? x[i] : 0;
}
void apply(void (*f)(const float*, float*, long), const float* x, float* y, long n) { f(x, y, n); }
"""
folder = os.environ["TMPDIR"]
with open(f"{folder}/own.c", "w") as file:
    file.write(CODE)
flags = ["-O3", "-shared", "-fPIC", "-lm"]
subprocess.run(["gcc", f"{folder}/own.c", "-o", f"{folder}/own.so", *flags], check=True)
own = ctypes.CDLL(f"{folder}/own.so")
P, L = ctypes.c_void_p, ctypes.c_long

own.apply.argtypes = [P, P, P, L]


def kernel(x):
    x = x.contiguous()
    out = torch.empty_like(x)
    work = ctypes.cast(own.relu_row, P)
    own.apply(work, x.data_ptr(), out.data_ptr(), x.numel())
    return out
