"""A linear layer and a ReLU in KernelBench's form: the parameters are the module's."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        return torch.relu(self.linear(x))


def get_inputs():
    return [torch.rand(96, 200)]


def get_init_inputs():
    return [200, 130]
