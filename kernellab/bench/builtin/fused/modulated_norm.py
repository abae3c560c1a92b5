"""A layer norm that another vector scales and shifts."""

import torch


def reference(x, shift, scale):
    return torch.nn.functional.layer_norm(x, x.shape[-1:]) * (1 + scale[:, None]) + shift[:, None]


def inputs():
    return torch.randn(8, 128, 512), torch.randn(8, 512), torch.randn(8, 512)
