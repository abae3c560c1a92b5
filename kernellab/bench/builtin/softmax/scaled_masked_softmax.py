"""The softmax of attention scores: scaled, with an additive mask."""

import torch

from kernellab import Dim

M, N = Dim("M", 1, 65536), Dim("N", 2, 16384)


def reference(x, mask, scale: float = 0.125):
    return torch.softmax(x * scale + mask, -1)


def inputs(M=4096, N=2048):
    return (torch.randn(M, N), torch.randn(N))
