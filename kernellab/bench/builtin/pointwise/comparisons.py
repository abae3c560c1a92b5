"""Where one lies between two others."""

import torch

from kernellab import Dim

M = Dim("M", 1, 65536)
N = Dim("N", 1, 16384)


def reference(x, low, high):
    return (x >= low) & (x < high) | torch.isnan(x)


def inputs(M=2048, N=1024):
    return torch.randn(M, N), torch.randn(M, 1) - 1, torch.randn(M, 1) + 1
