"""The length of a pair."""

import torch

from kernellab import Dim

M = Dim("M", 1, 65536)
N = Dim("N", 1, 16384)


def reference(x, y):
    return torch.hypot(x, y)


def inputs(M=2048, N=1024):
    return torch.randn(M, N), torch.randn(M, N)
