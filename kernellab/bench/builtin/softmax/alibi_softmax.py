"""A softmax with a slope of distance for each head."""

import torch


def reference(x, slopes):
    n = x.shape[-1]
    place = torch.arange(n, device=x.device)
    away = (place[None, :] - place[:, None]).abs()
    return torch.softmax(x - slopes[:, None, None] * away, dim=-1)


def inputs():
    return torch.randn(8, 12, 128, 128), torch.rand(12)
