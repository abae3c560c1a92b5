"""An RMS norm of heads, then turned by their places."""

import torch

from kernellab import Dim

M = Dim("M", 1, 4096)


def reference(x, w, cos, sin):
    y = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * w
    a, b = y.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def inputs(M=512):
    return torch.randn(M, 8, 128), torch.rand(128) + 0.5, torch.randn(M, 1, 64), torch.randn(M, 1, 64)
