"""SiLU of one large tensor."""

import torch


def reference(x):
    return x * torch.sigmoid(x)


def inputs():
    return torch.randn(4096, 2048)
