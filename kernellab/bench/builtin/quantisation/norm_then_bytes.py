"""An RMS norm whose result is stored as bytes."""

import torch

from kernellab import Dim

M = Dim("M", 1, 65536)


def reference(x, w):
    y = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * w
    scale = y.abs().amax(-1, keepdim=True) / 127
    return torch.round(y / scale).to(torch.int8), scale


def inputs(M=2048):
    return torch.randn(M, 1024), torch.rand(1024) + 0.5
