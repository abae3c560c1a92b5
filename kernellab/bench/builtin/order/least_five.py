"""The five least, in order."""

import torch

from kernellab import Dim

M = Dim("M", 1, 65536)


def reference(x):
    return torch.topk(x, 5, dim=-1, largest=False).values


def inputs(M=2048):
    return torch.randn(M, 700)
