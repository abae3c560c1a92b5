"""Values kept between bounds of their row."""

import torch

from kernellab import Dim

M = Dim("M", 1, 65536)
N = Dim("N", 1, 16384)


def reference(x, low, high):
    return torch.clamp(x, low, high)


def inputs(M=2048, N=1024):
    return 2 * torch.randn(M, N), torch.rand(M, 1) - 1.5, torch.rand(M, 1) + 0.5
