"""Causal attention of halves."""

import torch


def reference(q, k, v):
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)


def inputs():
    return (
        torch.randn(2, 8, 256, 64, dtype=torch.float16),
        torch.randn(2, 8, 256, 64, dtype=torch.float16),
        torch.randn(2, 8, 256, 64, dtype=torch.float16),
    )
