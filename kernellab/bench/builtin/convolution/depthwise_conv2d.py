"""Depthwise convolution: one 3 x 3 window for each channel."""

import torch
import torch.nn.functional as F


def reference(x, w):
    return F.conv2d(x, w, padding=1, groups=x.shape[1])


def inputs():
    return torch.randn(16, 64, 128, 128), torch.randn(64, 1, 3, 3)
