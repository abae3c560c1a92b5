"""Means of windows that overlap."""

import torch


def reference(x):
    return torch.nn.functional.avg_pool1d(x, 5, 2, 2)


def inputs():
    return torch.randn(16, 128, 1024)
