"""What a layer norm passes back to its input."""

import torch

from kernellab import Dim

M = Dim("M", 1, 65536)


def reference(g, x, w):
    c = x - x.mean(-1, keepdim=True)
    r = torch.rsqrt(c.square().mean(-1, keepdim=True) + 1e-5)
    n, gw = c * r, g * w
    return r * (gw - gw.mean(-1, keepdim=True) - n * (gw * n).mean(-1, keepdim=True))


def inputs(M=2048):
    return torch.randn(M, 768), torch.randn(M, 768), torch.rand(768) + 0.5
