"""Hinge loss with targets of -1 and 1, one for each row."""

import torch


def reference(x, target):
    return torch.mean(torch.clamp(1 - x * target[:, None], min=0))


def inputs():
    return (torch.randn(8192, 1024), torch.randint(0, 2, (8192,)).float() * 2 - 1)
