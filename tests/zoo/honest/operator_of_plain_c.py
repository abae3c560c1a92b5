# /// zoo
# task = "relu"
# dsl = "cpp"
# story = """
# Plain C by gcc and ctypes behind an operator that torch.library defines and implements for the CPU."""
# ///
import ctypes
import os
import subprocess

import torch

CODE = r"""
void relu(const float* x, float* y, long n) {
  for (long i = 0; i < n; i++) y[i] = x[i] > 0 || x[i] != x[i] ? x[i] : 0;
}
"""
folder = os.environ["TMPDIR"]
with open(f"{folder}/relu.c", "w") as file:
    file.write(CODE)
subprocess.run(["gcc", "-O3", "-shared", "-fPIC", f"{folder}/relu.c", "-o", f"{folder}/relu.so"], check=True)
own = ctypes.CDLL(f"{folder}/relu.so")
own.relu.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long]

library = torch.library.Library("plain_c", "DEF")
library.define("relu(Tensor x) -> Tensor")


def _relu(x):
    x = x.contiguous()
    out = torch.empty_like(x)
    own.relu(x.data_ptr(), out.data_ptr(), x.numel())
    return out


library.impl("relu", _relu, "CPU")


def kernel(x):
    return torch.ops.plain_c.relu(x)
