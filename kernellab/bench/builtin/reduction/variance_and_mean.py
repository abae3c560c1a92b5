"""Both moments of columns."""

import torch


def reference(x):
    var, mean = torch.var_mean(x, dim=0, correction=0)
    return mean, var


def inputs():
    return torch.randn(4096, 512) + torch.randn(512)
