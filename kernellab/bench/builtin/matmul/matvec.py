"""A matrix times a vector: bound by memory."""

import torch


def reference(a, v):
    return a @ v


def inputs():
    return (torch.randn(4096, 2048), torch.randn(2048))
