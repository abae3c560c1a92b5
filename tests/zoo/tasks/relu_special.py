"""A ReLU whose inputs hold NaN and infinities: the reference keeps NaN."""

import torch

from kernellab import Dim

M, N = Dim("M", 1, 1024), Dim("N", 8, 1024)


def reference(x):
    return torch.relu(x)


def inputs(M=64, N=100):
    x = torch.randn(M, N)
    x[:, 3] = float("nan")
    x[:, 5] = float("inf")
    x[:, 6] = float("-inf")
    return (x,)
