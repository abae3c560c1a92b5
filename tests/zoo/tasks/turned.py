"""A stack of matrices, each with its rows and columns exchanged."""

import torch

from kernellab import Dim

B, M, N = Dim("B", 1, 64), Dim("M", 1, 2048), Dim("N", 1, 2048)


def reference(x):
    return x.transpose(1, 2).contiguous()


def inputs(B=4, M=500, N=400):
    return (torch.randn(B, M, N),)
