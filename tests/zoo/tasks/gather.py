"""Rows of a table by index."""

import torch

from kernellab import Dim

V, D, B = Dim("V", 1, 65536), Dim("D", 1, 4096), Dim("B", 1, 65536)


def reference(table, index):
    return table[index]


def inputs(V=500, D=96, B=700):
    return torch.randn(V, D), torch.randint(0, V, (B,))
