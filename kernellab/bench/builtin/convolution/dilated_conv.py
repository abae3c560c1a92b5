"""Taps two places apart."""

import torch


def reference(x, w):
    return torch.nn.functional.conv2d(x, w, padding=2, dilation=2)


def inputs():
    return torch.randn(4, 32, 32, 32), torch.randn(48, 32, 3, 3)
