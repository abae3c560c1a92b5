"""Bits that are set, cleared and turned."""

import torch

from kernellab import Dim

M = Dim("M", 1, 65536)
N = Dim("N", 1, 16384)


def reference(x, y):
    return ((x & y) | (x >> 3)) ^ (y << 2)


def inputs(M=2048, N=1024):
    return torch.randint(0, 1 << 20, (M, N), dtype=torch.int32), torch.randint(0, 1 << 20, (M, N), dtype=torch.int32)
