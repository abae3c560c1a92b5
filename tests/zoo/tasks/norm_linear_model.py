"""A norm with weights, and a linear layer, in KernelBench's form: the norm's weights are ones when it is built."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.norm = nn.LayerNorm(n)
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        return self.linear(self.norm(x))


def get_inputs():
    return [torch.randn(96, 200)]


def get_init_inputs():
    return [200, 130]
