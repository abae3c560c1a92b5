"""Every other place, with a bias."""

import torch


def reference(x, w, b):
    return torch.nn.functional.conv2d(x, w, b, stride=2, padding=1)


def inputs():
    return torch.randn(8, 32, 56, 56), torch.randn(64, 32, 3, 3), torch.randn(64)
