"""A step of AdamW on weights of bf16 with float32 moments."""

import torch


def reference(w, g, m, v):
    g = g.float()
    m = 0.9 * m + 0.1 * g
    v = 0.99 * v + 0.01 * g * g
    w = w.float() * 0.999 - 1e-2 * m / (v.sqrt() + 1e-6)
    return w.to(torch.bfloat16), m, v


def inputs():
    return (
        torch.randn(2048, 1024, dtype=torch.bfloat16),
        torch.randn(2048, 1024, dtype=torch.bfloat16),
        torch.randn(2048, 1024),
        torch.rand(2048, 1024) + 0.1,
    )
