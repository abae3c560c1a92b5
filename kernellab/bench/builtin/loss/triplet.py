"""A margin between near and far."""

import torch

from kernellab import Dim

M = Dim("M", 1, 65536)


def reference(a, p, n):
    near = (a - p).square().sum(-1).sqrt()
    far = (a - n).square().sum(-1).sqrt()
    return torch.relu(near - far + 1.0)


def inputs(M=2048):
    return torch.randn(M, 256), torch.randn(M, 256), torch.randn(M, 256)
