"""The shares of the two best experts of each token, made to sum to one."""

import torch


def reference(logits):
    best = torch.topk(torch.softmax(logits, -1), 2).values
    return best / best.sum(-1, keepdim=True)


def inputs():
    return torch.randn(16384, 64)
