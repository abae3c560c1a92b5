"""A batch norm by the statistics of the batch."""

import torch


def reference(x, w, b):
    mean = x.mean((0, 2, 3), keepdim=True)
    var = x.var((0, 2, 3), correction=0, keepdim=True)
    return (x - mean) * torch.rsqrt(var + 1e-5) * w[:, None, None] + b[:, None, None]


def inputs():
    return 2 * torch.randn(16, 32, 48, 48) + 1, torch.rand(32) + 0.5, torch.randn(32)
