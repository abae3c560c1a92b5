"""A softmax of what lies before."""

import torch


def reference(x):
    n = x.shape[-1]
    keep = torch.ones(n, n, dtype=torch.bool, device=x.device).tril()
    return torch.softmax(x.masked_fill(~keep, float("-inf")), dim=-1)


def inputs():
    return torch.randn(64, 256, 256)
