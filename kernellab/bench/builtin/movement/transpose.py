"""Rows for columns."""

import torch

from kernellab import Dim

M = Dim("M", 1, 65536)
N = Dim("N", 1, 16384)


def reference(x):
    return x.T.contiguous()


def inputs(M=2048, N=1024):
    return torch.randn(M, N)
