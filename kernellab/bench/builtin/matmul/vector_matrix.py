"""A row times a matrix."""

import torch

from kernellab import Dim

K = Dim("K", 1, 8192)
N = Dim("N", 1, 8192)


def reference(x, w):
    return x @ w


def inputs(K=2048, N=2048):
    return torch.randn(K), torch.randn(K, N)
