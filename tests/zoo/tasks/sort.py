"""Each row in order."""

import torch

from kernellab import Dim

M, N = Dim("M", 1, 4096), Dim("N", 1, 4096)


def reference(x):
    return x.sort(-1).values


def inputs(M=64, N=300):
    return (torch.randn(M, N),)
