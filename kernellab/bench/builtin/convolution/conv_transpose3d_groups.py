"""Transposed convolution of volumes in groups, strided and padded."""

import torch
import torch.nn.functional as F


def reference(x, w):
    return F.conv_transpose3d(x, w, stride=2, padding=1, groups=4)


def inputs():
    return torch.randn(4, 32, 12, 24, 24), torch.randn(32, 8, 3, 3, 3) / 15
