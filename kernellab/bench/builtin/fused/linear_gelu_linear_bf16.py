"""A feed-forward layer of bf16."""

import torch

from kernellab import Dim

M = Dim("M", 1, 4096)


def reference(x, a, b):
    return torch.nn.functional.gelu(x @ a.T) @ b.T


def inputs(M=256):
    return (
        torch.randn(M, 256, dtype=torch.bfloat16),
        torch.randn(512, 256, dtype=torch.bfloat16) / 16,
        torch.randn(256, 512, dtype=torch.bfloat16) / 22,
    )
