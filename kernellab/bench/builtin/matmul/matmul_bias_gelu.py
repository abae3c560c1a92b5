"""A matrix product with bias and GELU on the way out."""

import torch

from kernellab import Dim

M, N, K = Dim("M", 1, 8192), Dim("N", 1, 8192), Dim("K", 1, 8192)


def reference(a, b, bias):
    return torch.nn.functional.gelu(a @ b + bias)


def inputs(M=1024, N=1024, K=1024):
    return (torch.randn(M, K), torch.randn(K, N), torch.randn(N))
