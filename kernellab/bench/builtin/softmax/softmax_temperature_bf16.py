"""A softmax at a temperature, of bf16."""

import torch

from kernellab import Dim

M = Dim("M", 1, 65536)


def reference(x, temperature=0.7):
    return torch.softmax(x.float() / temperature, dim=-1).to(x.dtype)


def inputs(M=2048):
    return torch.randn(M, 4096, dtype=torch.bfloat16)
