"""The square of a rectifier, of bf16."""

import torch

from kernellab import Dim

M = Dim("M", 1, 65536)


def reference(x):
    return torch.relu(x).square()


def inputs(M=2048):
    return torch.randn(M, 4096, dtype=torch.bfloat16)
