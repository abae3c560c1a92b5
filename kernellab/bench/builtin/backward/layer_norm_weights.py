"""What a layer norm passes back to scale and shift."""

import torch


def reference(g, x):
    c = x - x.mean(-1, keepdim=True)
    n = c * torch.rsqrt(c.square().mean(-1, keepdim=True) + 1e-5)
    return (g * n).sum(0), g.sum(0)


def inputs():
    return torch.randn(2048, 512), torch.randn(2048, 512)
