"""Pairs of neighbours turned by an angle."""

import torch

from kernellab import Dim

M = Dim("M", 1, 4096)


def reference(x, cos, sin):
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack([a * cos - b * sin, a * sin + b * cos], dim=-1).flatten(-2)


def inputs(M=512):
    return torch.randn(M, 16, 128), torch.randn(M, 1, 64), torch.randn(M, 1, 64)
