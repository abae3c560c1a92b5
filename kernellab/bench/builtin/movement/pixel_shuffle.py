"""Channels become places."""

import torch


def reference(x):
    return torch.nn.functional.pixel_shuffle(x, 2)


def inputs():
    return torch.randn(8, 64, 32, 32)
