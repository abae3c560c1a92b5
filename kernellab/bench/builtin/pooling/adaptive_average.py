"""Seven places of any image."""

import torch


def reference(x):
    return torch.nn.functional.adaptive_avg_pool2d(x, 7)


def inputs():
    return torch.randn(8, 64, 28, 28) + 1
