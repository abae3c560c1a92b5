"""The gated half of a feed-forward layer, of bf16."""

import torch

from kernellab import Dim

M = Dim("M", 1, 4096)


def reference(x, gate, up):
    return torch.nn.functional.silu(x @ gate.T) * (x @ up.T)


def inputs(M=256):
    return (
        torch.randn(M, 512, dtype=torch.bfloat16),
        torch.randn(1024, 512, dtype=torch.bfloat16) / 22,
        torch.randn(1024, 512, dtype=torch.bfloat16) / 22,
    )
