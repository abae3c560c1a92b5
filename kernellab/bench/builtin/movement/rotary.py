"""Rotary positions: halves of each head turned against one another."""

import torch


def reference(x, cos, sin):
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat((-second, first), -1) * sin


def inputs():
    return torch.randn(4, 16, 512, 64), torch.randn(512, 64), torch.randn(512, 64)
