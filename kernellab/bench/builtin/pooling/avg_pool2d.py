"""Means of overlapping windows that count only what is inside."""

import torch
import torch.nn.functional as F


def reference(x):
    return F.avg_pool2d(x, 3, 2, 1, count_include_pad=False)


def inputs():
    return torch.randn(16, 64, 224, 224)
