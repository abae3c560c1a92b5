"""Heads brought before positions, and scaled."""

import torch


def reference(x):
    return x.permute(0, 2, 1, 3) * 0.125


def inputs():
    return torch.randn(8, 512, 16, 64)
