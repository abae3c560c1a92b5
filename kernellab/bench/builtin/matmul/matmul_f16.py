"""A product of halves."""

import torch

from kernellab import Dim

M = Dim("M", 1, 4096)
N = Dim("N", 1, 4096)
K = Dim("K", 8, 4096)


def reference(a, b):
    return a @ b


def inputs(M=512, N=512, K=1024):
    return torch.randn(M, K, dtype=torch.float16), torch.randn(K, N, dtype=torch.float16)
