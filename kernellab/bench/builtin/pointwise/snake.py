"""A periodic activation with a frequency for each channel."""

import torch


def reference(x, a):
    return x + torch.sin(a[:, None] * x).square() / a[:, None]


def inputs():
    return torch.randn(16, 128, 2048), torch.rand(128) + 0.5
