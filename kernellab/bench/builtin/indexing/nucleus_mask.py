"""The likeliest of a row until they hold so much."""

import torch


def reference(p):
    s, order = torch.sort(p, dim=-1, descending=True, stable=True)
    keep = s.cumsum(-1) - s < 0.9
    return torch.zeros_like(p).scatter(-1, order, torch.where(keep, s, 0.0))


def inputs():
    return torch.softmax(3 * torch.randn(256, 512), -1)
