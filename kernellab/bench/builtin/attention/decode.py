"""One new place against all that came."""

import torch

from kernellab import Dim

S = Dim("S", 1, 8192)


def reference(q, k, v):
    return torch.nn.functional.scaled_dot_product_attention(q, k, v)


def inputs(S=512):
    return torch.randn(8, 8, 1, 64), torch.randn(8, 8, S, 64), torch.randn(8, 8, S, 64)
