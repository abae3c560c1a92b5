"""Means of small volumes, padded with zeros."""

import torch
import torch.nn.functional as F


def reference(x):
    return F.avg_pool3d(x, 3, 2, 1)


def inputs():
    return torch.randn(8, 16, 32, 64, 64)
