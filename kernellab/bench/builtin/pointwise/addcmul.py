"""A sum and a scaled product."""

import torch

from kernellab import Dim

M = Dim("M", 1, 65536)
N = Dim("N", 1, 16384)


def reference(x, a, b):
    return torch.addcmul(x, a, b, value=0.3)


def inputs(M=2048, N=1024):
    return torch.randn(M, N), torch.randn(M, N), torch.randn(M, N)
