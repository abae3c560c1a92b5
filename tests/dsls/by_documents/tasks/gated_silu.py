"""A gate and what it lets through."""

import torch


def reference(x, gate):
    return torch.nn.functional.silu(gate) * x


def inputs():
    return torch.randn(130, 256), torch.randn(130, 256)
