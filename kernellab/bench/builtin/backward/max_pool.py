"""Where a pool of four took its value from."""

import torch


def reference(g, x):
    b, c, h, w = x.shape
    y = x.view(b, c, h // 2, 2, w // 2, 2)
    best = y.amax((3, 5), keepdim=True)
    return ((y == best) * g[:, :, :, None, :, None]).view(x.shape)


def inputs():
    return torch.randn(8, 32, 16, 16), torch.randn(8, 32, 32, 32)
