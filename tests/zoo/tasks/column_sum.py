"""The sum of each column."""

import torch

from kernellab import Dim

M, N = Dim("M", 1, 16384), Dim("N", 1, 16384)


def reference(x):
    return x.sum(0)


def inputs(M=1000, N=256):
    return (torch.randn(M, N),)
