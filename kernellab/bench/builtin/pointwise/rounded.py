"""Rounding, floor and what is left."""

import torch

from kernellab import Dim

M = Dim("M", 1, 65536)
N = Dim("N", 1, 16384)


def reference(x):
    return torch.round(x) + torch.floor(2 * x) + torch.frac(x)


def inputs(M=2048, N=1024):
    return 3 * torch.randn(M, N)
