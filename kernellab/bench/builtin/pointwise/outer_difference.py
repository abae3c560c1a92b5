"""Each of one against each of another."""

import torch

from kernellab import Dim

M = Dim("M", 1, 16384)
N = Dim("N", 1, 16384)


def reference(x, y):
    return torch.exp(-(x[:, None] - y[None, :]).abs())


def inputs(M=2048, N=1536):
    return torch.randn(M), torch.randn(N)
