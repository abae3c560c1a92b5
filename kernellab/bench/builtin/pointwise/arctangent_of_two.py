"""The angle of a point."""

import torch

from kernellab import Dim

M = Dim("M", 1, 65536)
N = Dim("N", 1, 16384)


def reference(y, x):
    return torch.atan2(y, x)


def inputs(M=2048, N=1024):
    return torch.randn(M, N), torch.randn(M, N)
