"""Two linear layers with a rectifier between them."""

import torch

from kernellab import Dim

M = Dim("M", 1, 4096)


def reference(x, w1, b1, w2, b2):
    return torch.relu(x @ w1.T + b1) @ w2.T + b2


def inputs(M=256):
    return (
        torch.randn(M, 512),
        torch.randn(1024, 512) / 22,
        torch.randn(1024),
        torch.randn(512, 1024) / 32,
        torch.randn(512),
    )
