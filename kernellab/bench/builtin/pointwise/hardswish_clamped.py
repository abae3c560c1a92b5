"""Hard swish followed by a clamp with scalar arguments."""

import torch

from kernellab import Dim

M, N = Dim("M", 1, 65536), Dim("N", 2, 16384)


def reference(x, low: float = -0.25, high: float = 4.0):
    return torch.clamp(x * torch.clamp(x + 3.0, 0.0, 6.0) / 6.0, low, high)


def inputs(M=4096, N=2048):
    return torch.randn(M, N)
