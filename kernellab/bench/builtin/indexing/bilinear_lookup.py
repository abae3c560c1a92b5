"""A value between four neighbours of an image."""

import torch

from kernellab import Dim

N = Dim("N", 1, 1048576)
DOMAIN = {"u": "range(0, 254)", "v": "range(0, 254)"}


def reference(x, u, v):
    i, j = u.floor().long(), v.floor().long()
    a, b = u - i, v - j
    top = x[i, j] * (1 - b) + x[i, j + 1] * b
    low = x[i + 1, j] * (1 - b) + x[i + 1, j + 1] * b
    return top * (1 - a) + low * a


def inputs(N=65536):
    return torch.randn(256, 256), torch.rand(N) * 254, torch.rand(N) * 254
