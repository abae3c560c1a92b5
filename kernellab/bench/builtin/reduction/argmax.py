"""Index of the largest element of each row."""

import torch


def reference(x):
    return x.argmax(-1)


def inputs():
    return torch.randn(4096, 2048)
