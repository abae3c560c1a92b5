"""Attention where a mask lets it."""

import torch


def reference(q, k, v, keep):
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=keep)


def inputs():
    return (
        torch.randn(2, 8, 256, 64),
        torch.randn(2, 8, 256, 64),
        torch.randn(2, 8, 256, 64),
        torch.rand(2, 1, 256, 256) > 0.2,
    )
