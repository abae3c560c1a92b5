"""Three parts, each scaled by its own number."""

import torch

from kernellab import Dim

M = Dim("M", 1, 65536)


def reference(x):
    a, b, c = x.split([256, 512, 256], dim=-1)
    return a * 2, b * 3, c * 4


def inputs(M=2048):
    return torch.randn(M, 1024)
