"""A rectifier that leaks."""

import torch

from kernellab import Dim

M = Dim("M", 1, 65536)
N = Dim("N", 1, 16384)


def reference(x, slope=0.05):
    return torch.nn.functional.leaky_relu(x, slope)


def inputs(M=2048, N=1024):
    return torch.randn(M, N)
