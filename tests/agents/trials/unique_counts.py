"""How often the number at each place stands in its row."""

import torch


def reference(x):
    return (x[:, :, None] == x[:, None, :]).sum(-1)


def inputs():
    return (torch.randint(0, 50, (256, 200)),)
