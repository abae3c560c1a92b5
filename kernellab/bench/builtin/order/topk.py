"""The largest elements of rows, in order; where equal ones are is left open, and so not asked for."""

import torch

from kernellab import Dim

M = Dim("M", 1, 65536)


def reference(x):
    return torch.topk(x, 8).values


def inputs(M=2048):
    return torch.randn(M, 4096)
