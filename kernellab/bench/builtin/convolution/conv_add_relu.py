"""A convolution, what it skipped, and a rectifier."""

import torch


def reference(x, w, r):
    return torch.relu(torch.nn.functional.conv2d(x, w, padding=1) + r)


def inputs():
    return torch.randn(4, 48, 28, 28), torch.randn(48, 48, 3, 3), torch.randn(4, 48, 28, 28)
