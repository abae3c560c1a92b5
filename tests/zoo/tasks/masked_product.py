"""A product of a matrix of which a mask leaves some out."""

import torch

from kernellab import Dim

M, N, K = Dim("M", 1, 4096), Dim("N", 1, 4096), Dim("K", 1, 4096)


def reference(a, mask, b):
    return (a * mask) @ b


def inputs(M=320, N=256, K=384):
    return torch.randn(M, K), torch.rand(M, K) < 0.8, torch.randn(K, N)
