"""Each channel by itself, then across channels."""

import torch


def reference(x, d, p):
    return torch.nn.functional.conv2d(torch.nn.functional.conv2d(x, d, padding=1, groups=x.shape[1]), p)


def inputs():
    return torch.randn(8, 64, 28, 28), torch.randn(64, 1, 3, 3), torch.randn(96, 64, 1, 1)
