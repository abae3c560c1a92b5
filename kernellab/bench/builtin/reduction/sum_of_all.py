"""One number of many."""

import torch

from kernellab import Dim

N = Dim("N", 1, 16777216)


def reference(x):
    return x.sum()


def inputs(N=4194304):
    return torch.randn(N) + 0.5
