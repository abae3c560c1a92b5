"""Three side by side."""

import torch

from kernellab import Dim

M = Dim("M", 1, 65536)


def reference(x, y, z):
    return torch.cat([x, y, z], dim=1)


def inputs(M=2048):
    return torch.randn(M, 300), torch.randn(M, 500), torch.randn(M, 200)
