"""A group norm and a SiLU."""

import torch


def reference(x, w, b):
    return torch.nn.functional.silu(torch.nn.functional.group_norm(x, 8, w, b))


def inputs():
    return torch.randn(8, 64, 40, 40), torch.rand(64) + 0.5, torch.randn(64)
