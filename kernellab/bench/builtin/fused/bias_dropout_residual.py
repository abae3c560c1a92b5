"""A bias, a mask that is given, and what was skipped."""

import torch

from kernellab import Dim

M = Dim("M", 1, 65536)


def reference(x, b, keep, r):
    return (x + b) * keep / 0.9 + r


def inputs(M=2048):
    return torch.randn(M, 1024), torch.randn(1024), (torch.rand(M, 1024) > 0.1).float(), torch.randn(M, 1024)
