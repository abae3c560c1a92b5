"""The distance of each row from another's."""

import torch

from kernellab import Dim

M = Dim("M", 1, 65536)


def reference(x, y):
    return ((x - y).square().sum(-1) + 1e-8).sqrt()


def inputs(M=2048):
    return torch.randn(M, 768), torch.randn(M, 768)
