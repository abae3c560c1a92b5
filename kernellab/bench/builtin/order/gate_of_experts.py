"""The two experts of the largest shares for each token."""

import torch


def reference(logits):
    return torch.topk(torch.softmax(logits, -1), 2)


def inputs():
    return torch.randn(16384, 64)
