"""Attention of bf16 over a changing length."""

import torch

from kernellab import Dim

S = Dim("S", 1, 4096)


def reference(q, k, v):
    return torch.nn.functional.scaled_dot_product_attention(q, k, v)


def inputs(S=256):
    return (
        torch.randn(2, 4, S, 64, dtype=torch.bfloat16),
        torch.randn(2, 4, S, 64, dtype=torch.bfloat16),
        torch.randn(2, 4, S, 64, dtype=torch.bfloat16),
    )
