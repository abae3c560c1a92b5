"""A convolution of signals of halves."""

import torch


def reference(x, w):
    return torch.nn.functional.conv1d(x, w, padding=2)


def inputs():
    return torch.randn(16, 64, 512, dtype=torch.float16), torch.randn(64, 64, 5, dtype=torch.float16) / 18
