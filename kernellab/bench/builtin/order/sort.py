"""Rows sorted, with the places of their elements."""

import torch


def reference(x):
    return torch.sort(x, dim=-1, stable=True)


def inputs():
    return torch.randn(2048, 512)
