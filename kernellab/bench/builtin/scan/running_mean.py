"""The mean of what came so far."""

import torch

from kernellab import Dim

M = Dim("M", 1, 65536)


def reference(x):
    return x.cumsum(-1) / torch.arange(1, x.shape[-1] + 1, device=x.device)


def inputs(M=2048):
    return torch.randn(M, 1024) + 1
