"""Probabilities of the fewest words that together reach nine tenths, made to sum to one."""

import torch


def reference(logits):
    p = torch.softmax(logits, -1)
    ordered, order = p.sort(-1, descending=True)
    kept = ordered.cumsum(-1) - ordered < 0.9
    chosen = torch.zeros_like(p).scatter(-1, order, ordered * kept)
    return chosen / chosen.sum(-1, keepdim=True)


def inputs():
    return (torch.randn(64, 1000) * 3,)
