"""Running product along rows of values near one."""

import torch


def reference(x):
    return torch.cumprod(x, -1)


def inputs():
    return 1 + 0.01 * torch.randn(4096, 2048)
