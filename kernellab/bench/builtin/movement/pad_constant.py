"""A rim of a number."""

import torch


def reference(x):
    return torch.nn.functional.pad(x, (1, 2, 3, 4), value=0.5)


def inputs():
    return torch.randn(16, 32, 60, 60)
