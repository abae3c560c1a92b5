"""Softmax of long rows: every value is below 1e-3."""

import torch


def reference(x):
    return torch.softmax(x, -1)


def inputs():
    return (torch.rand(8, 16384),)
