"""A product of bf16 by a transposed weight."""

import torch

from kernellab import Dim

M = Dim("M", 1, 8192)


def reference(a, b):
    return a @ b.T


def inputs(M=512):
    return torch.randn(M, 1024, dtype=torch.bfloat16), torch.randn(768, 1024, dtype=torch.bfloat16)
