"""Each row by the weight of its expert."""

import torch


def reference(x, expert, w):
    return torch.einsum("mi,mio->mo", x, w[expert])


def inputs():
    return torch.randn(64, 64), torch.randint(0, 8, (64,)), torch.randn(8, 64, 48) / 8
