"""Instance normalisation: every plane of every image on its own."""

import torch


def reference(x):
    return torch.nn.functional.instance_norm(x)


def inputs():
    return torch.randn(16, 64, 96, 96)
