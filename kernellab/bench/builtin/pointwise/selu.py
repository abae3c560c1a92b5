"""The self-normalising unit."""

import torch


def reference(x):
    return torch.nn.functional.selu(x)


def inputs():
    return torch.randn(4096, 2048)
