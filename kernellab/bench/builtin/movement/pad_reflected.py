"""A rim that mirrors."""

import torch


def reference(x):
    return torch.nn.functional.pad(x, (2, 2, 2, 2), mode="reflect")


def inputs():
    return torch.randn(8, 16, 48, 48)
