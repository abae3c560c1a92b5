"""Each channel by what came before it, and a SiLU."""

import torch


def reference(x, w, b):
    y = torch.nn.functional.conv1d(torch.nn.functional.pad(x, (3, 0)), w[:, None], b, groups=x.shape[1])
    return torch.nn.functional.silu(y)


def inputs():
    return torch.randn(8, 256, 1024), torch.randn(256, 4), torch.randn(256)
