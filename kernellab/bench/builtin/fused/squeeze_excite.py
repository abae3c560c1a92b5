"""Channels weighed by what the whole image holds."""

import torch


def reference(x, a, b):
    s = torch.sigmoid(torch.relu(x.mean((2, 3)) @ a.T) @ b.T)
    return x * s[:, :, None, None]


def inputs():
    return torch.randn(8, 64, 28, 28) + 1, torch.randn(16, 64) / 4, torch.randn(64, 16) / 4
