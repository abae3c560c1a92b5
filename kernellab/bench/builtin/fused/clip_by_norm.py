"""Gradients no longer than one."""

import torch

from kernellab import Dim

N = Dim("N", 1, 16777216)


def reference(g):
    n = g.square().sum().sqrt()
    return g * torch.clamp(1.0 / (n + 1e-6), max=1.0)


def inputs(N=1048576):
    return torch.randn(N)
