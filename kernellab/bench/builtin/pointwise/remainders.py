"""Remainders of Python's sign and of C's."""

import torch

from kernellab import Dim

M = Dim("M", 1, 65536)
N = Dim("N", 1, 16384)


def reference(x, y):
    return torch.remainder(x, y), torch.fmod(x, y)


def inputs(M=2048, N=1024):
    return torch.randint(-999, 999, (M, N)), torch.randint(1, 99, (M, N))
