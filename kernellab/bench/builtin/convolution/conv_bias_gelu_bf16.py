"""A convolution, a bias and a GELU, of bf16."""

import torch


def reference(x, w, b):
    return torch.nn.functional.gelu(torch.nn.functional.conv2d(x, w, b, padding=1))


def inputs():
    return (
        torch.randn(4, 32, 28, 28, dtype=torch.bfloat16),
        torch.randn(32, 32, 3, 3, dtype=torch.bfloat16) / 17,
        torch.randn(32, dtype=torch.bfloat16),
    )
