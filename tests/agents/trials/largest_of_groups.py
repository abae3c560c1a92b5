"""The largest row of each group."""

import torch


def reference(x, group):
    start = torch.full((32, x.shape[1]), -1e30)
    return start.scatter_reduce(0, group[:, None].expand_as(x), x, "amax")


def inputs():
    return torch.randn(2048, 64), torch.randint(0, 32, (2048,))
