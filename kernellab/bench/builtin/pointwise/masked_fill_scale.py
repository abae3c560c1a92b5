"""A boolean mask chooses between a scaled value and a constant."""

import torch

from kernellab import Dim

M, N = Dim("M", 1, 65536), Dim("N", 2, 16384)


def reference(x, mask):
    return torch.where(mask, x * 0.125, torch.full_like(x, -1e4))


def inputs(M=4096, N=2048):
    return (torch.randn(M, N), torch.rand(M, N) > 0.5)
