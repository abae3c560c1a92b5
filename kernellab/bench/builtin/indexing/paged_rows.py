"""Rows of pages that a table names."""

import torch

from kernellab import Dim

B = Dim("B", 1, 512)


def reference(cache, table):
    return cache[table].flatten(1, 2)


def inputs(B=32):
    return torch.randn(512, 16, 128), torch.randint(0, 512, (B, 24))
