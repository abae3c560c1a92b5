"""The place of the largest of each row, the first of equals."""

import torch

from kernellab import Dim

M, N = Dim("M", 1, 8192), Dim("N", 1, 8192)


def reference(x):
    return x.argmax(-1)


def inputs(M=128, N=200):
    return (torch.randn(M, N).mul(4).round(),)
