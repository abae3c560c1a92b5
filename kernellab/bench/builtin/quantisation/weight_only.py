"""A product by a weight of bytes."""

import torch

from kernellab import Dim

M = Dim("M", 1, 2048)


def reference(x, w, scale):
    return x @ (w.float() * scale[:, None]).T


def inputs(M=64):
    return torch.randn(M, 512), torch.randint(-127, 128, (768, 512), dtype=torch.int8), torch.rand(768) / 64
