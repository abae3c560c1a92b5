"""A convolution of one place: a product."""

import torch


def reference(x, w):
    return torch.nn.functional.conv2d(x, w)


def inputs():
    return torch.randn(8, 96, 28, 28), torch.randn(128, 96, 1, 1)
