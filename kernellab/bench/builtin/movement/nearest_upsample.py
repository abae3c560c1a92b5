"""Each place twice."""

import torch


def reference(x):
    return torch.nn.functional.interpolate(x, scale_factor=2, mode="nearest")


def inputs():
    return torch.randn(8, 32, 32, 32)
