"""Groups of channels by themselves."""

import torch


def reference(x, w):
    return torch.nn.functional.conv2d(x, w, padding=1, groups=4)


def inputs():
    return torch.randn(8, 64, 28, 28), torch.randn(64, 16, 3, 3)
