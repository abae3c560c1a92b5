"""A matrix product."""

import torch

from kernellab import Dim

M, N, K = Dim("M", 1, 4096), Dim("N", 1, 4096), Dim("K", 1, 4096)


def reference(a, b):
    return a @ b


def inputs(M=320, N=256, K=384):
    return torch.randn(M, K), torch.randn(K, N)
