"""A plain matrix product."""

import torch

from kernellab import Dim

M, N, K = Dim("M", 1, 8192), Dim("N", 1, 8192), Dim("K", 1, 8192)


def reference(a, b):
    return a @ b


def inputs(M=1024, N=1024, K=1024):
    return (torch.randn(M, K), torch.randn(K, N))
