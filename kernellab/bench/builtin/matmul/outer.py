"""The outer product of two vectors."""

import torch

from kernellab import Dim

M = Dim("M", 1, 16384)
N = Dim("N", 1, 16384)


def reference(x, y):
    return torch.outer(x, y)


def inputs(M=2048, N=2048):
    return torch.randn(M), torch.randn(N)
