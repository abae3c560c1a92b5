"""A bias along the rows, GELU, and a residual: three inputs, two ranks."""

import torch

from kernellab import Dim

M, N = Dim("M", 1, 65536), Dim("N", 2, 16384)


def reference(x, bias, residual):
    return torch.nn.functional.gelu(x + bias) + residual


def inputs(M=4096, N=2048):
    return (torch.randn(M, N), torch.randn(N), torch.randn(M, N))
