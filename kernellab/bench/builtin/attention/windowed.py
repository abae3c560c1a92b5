"""Attention to the last few places."""

import torch


def reference(q, k, v):
    n = torch.arange(q.shape[-2], device=q.device)
    away = n[:, None] - n[None, :]
    scores = q @ k.transpose(-1, -2) / 8
    return torch.softmax(scores.masked_fill((away < 0) | (away >= 64), float("-inf")), dim=-1) @ v


def inputs():
    return torch.randn(2, 8, 256, 64), torch.randn(2, 8, 256, 64), torch.randn(2, 8, 256, 64)
