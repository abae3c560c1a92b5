"""What lies on and below the diagonal."""

import torch


def reference(x):
    return torch.tril(x)


def inputs():
    return torch.randn(32, 256, 256)
