"""Layer normalisation with a weight."""

import torch


def reference(x, w):
    return torch.nn.functional.layer_norm(x, (768,), w)


def inputs():
    return torch.randn(512, 768), torch.randn(768)
