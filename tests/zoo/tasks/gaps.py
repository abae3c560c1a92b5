"""The squared gaps between the numbers of each sorted row."""

import torch

from kernellab import Dim

M, N = Dim("M", 1, 4096), Dim("N", 2, 4096)


def reference(x):
    return x.diff(dim=-1).square()


def inputs(M=300, N=200):
    return (torch.randn(M, N).sort(-1).values,)
