"""A product of bytes, scaled back."""

import torch

from kernellab import Dim

M = Dim("M", 1, 4096)


def reference(a, b, sa, sb):
    return (a.float() @ b.float().T) * sa * sb


def inputs(M=256):
    return (
        torch.randint(-127, 128, (M, 512), dtype=torch.int8),
        torch.randint(-127, 128, (256, 512), dtype=torch.int8),
        torch.rand(M, 1) / 64,
        torch.rand(256) / 64,
    )
