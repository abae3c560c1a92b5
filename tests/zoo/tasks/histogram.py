"""How often each of 64 values occurs."""

import torch

from kernellab import Dim

M = Dim("M", 1, 1 << 20)


def reference(x):
    return (x[:, None] == torch.arange(64, device=x.device)).sum(0)


def inputs(M=200000):
    return (torch.randint(0, 64, (M,)),)
