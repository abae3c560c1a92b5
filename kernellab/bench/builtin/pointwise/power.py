"""A real power of positive numbers."""

import torch

from kernellab import Dim

M = Dim("M", 1, 65536)
N = Dim("N", 1, 16384)


def reference(x, y):
    return torch.pow(x, y)


def inputs(M=2048, N=1024):
    return torch.rand(M, N) + 0.5, torch.randn(M, N)
