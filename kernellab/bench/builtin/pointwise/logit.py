"""The inverse of a sigmoid."""

import torch

from kernellab import Dim

M = Dim("M", 1, 65536)
N = Dim("N", 1, 16384)


def reference(p):
    return torch.log(p / (1 - p))


def inputs(M=2048, N=1024):
    return torch.rand(M, N) * 0.9 + 0.05
