"""A matrix times its own transpose."""

import torch

from kernellab import Dim

M = Dim("M", 1, 4096)


def reference(a):
    return a @ a.T


def inputs(M=768):
    return torch.randn(M, 512)
