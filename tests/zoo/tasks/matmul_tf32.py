"""A matrix product that may round its factors to TF32."""

import torch

from kernellab import Dim

M, N, K = Dim("M", 1, 4096), Dim("N", 1, 4096), Dim("K", 1, 4096)
PRECISION = {"matmul": "tf32"}


def reference(a, b):
    return a @ b


def inputs(M=192, N=128, K=256):
    return torch.randn(M, K), torch.randn(K, N)
