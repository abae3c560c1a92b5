"""Two numbers of four bits in a byte, unpacked."""

import torch

from kernellab import Dim

M = Dim("M", 1, 65536)


def reference(w, scale):
    low, high = (w & 15).float() - 8, (w >> 4).float() - 8
    return torch.stack([low, high], -1).flatten(-2) * scale


def inputs(M=2048):
    return torch.randint(0, 256, (M, 512), dtype=torch.uint8), torch.rand(M, 1) + 0.1
