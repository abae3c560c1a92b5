"""Attention without a softmax: keys and values first."""

import torch


def reference(q, k, v):
    q, k = torch.nn.functional.elu(q) + 1, torch.nn.functional.elu(k) + 1
    state = k.transpose(-1, -2) @ v
    return (q @ state) / (q @ k.sum(-2)[..., None])


def inputs():
    return torch.randn(2, 8, 256, 64), torch.randn(2, 8, 256, 64), torch.randn(2, 8, 256, 64)
