"""Rows moved to between zero and one."""

import torch

from kernellab import Dim

M = Dim("M", 1, 65536)


def reference(x):
    low, high = x.amin(-1, keepdim=True), x.amax(-1, keepdim=True)
    return (x - low) / (high - low + 1e-6)


def inputs(M=2048):
    return torch.randn(M, 1000)
