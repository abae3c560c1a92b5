"""A few rows against a large weight."""

import torch

from kernellab import Dim

M = Dim("M", 1, 16)


def reference(x, w):
    return x @ w.T


def inputs(M=4):
    return torch.randn(M, 2048), torch.randn(4096, 2048)
