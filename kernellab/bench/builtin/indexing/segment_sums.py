"""Sums of rows that belong together."""

import torch


def reference(x, group):
    return torch.zeros(64, x.shape[1], device=x.device).index_add(0, group, x)


def inputs():
    return torch.randn(4096, 64), torch.randint(0, 64, (4096,))
