"""The logarithm of a sum of two exponentials."""

import torch

from kernellab import Dim

M = Dim("M", 1, 65536)
N = Dim("N", 1, 16384)


def reference(x, y):
    return torch.logaddexp(x, y)


def inputs(M=2048, N=1024):
    return 3 * torch.randn(M, N), 3 * torch.randn(M, N)
