"""Sums of float16 rows."""

import torch

from kernellab import Dim

M, N = Dim("M", 1, 8192), Dim("N", 1, 16384)


def reference(x):
    return x.float().sum(-1)


def inputs(M=128, N=2000):
    return (torch.randn(M, N, dtype=torch.float16),)
