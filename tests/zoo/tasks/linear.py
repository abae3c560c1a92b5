"""x W^T: the weights are an input like any other."""

import torch

from kernellab import Dim

M, N, K = Dim("M", 1, 4096), Dim("N", 1, 4096), Dim("K", 1, 4096)


def reference(x, w):
    return x @ w.T


def inputs(M=64, N=256, K=320):
    return torch.randn(M, K), torch.randn(N, K)
