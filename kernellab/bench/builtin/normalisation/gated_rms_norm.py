"""An RMS norm of a gated value."""

import torch

from kernellab import Dim

M = Dim("M", 1, 65536)


def reference(x, z, w):
    y = x * torch.nn.functional.silu(z)
    return y * torch.rsqrt(y.square().mean(-1, keepdim=True) + 1e-5) * w


def inputs(M=2048):
    return torch.randn(M, 1024), torch.randn(M, 1024), torch.rand(1024) + 0.5
