"""GELU with the tanh approximation, spelled out in six operations."""

import torch

from kernellab import Dim

M, N = Dim("M", 1, 65536), Dim("N", 2, 16384)


def reference(x):
    return 0.5 * x * (1.0 + torch.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))


def inputs(M=4096, N=2048):
    return torch.randn(M, N)
