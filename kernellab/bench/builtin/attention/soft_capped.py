"""Scores that a hyperbolic tangent holds."""

import torch


def reference(q, k, v):
    return torch.softmax(20 * torch.tanh(q @ k.transpose(-1, -2) / 160), dim=-1) @ v


def inputs():
    return torch.randn(2, 8, 256, 64), torch.randn(2, 8, 256, 64), torch.randn(2, 8, 256, 64)
