"""The 2-norm of windows."""

import torch


def reference(x):
    return torch.nn.functional.lp_pool2d(x, 2.0, 3, stride=2)


def inputs():
    return torch.rand(8, 32, 48, 48) + 0.1
