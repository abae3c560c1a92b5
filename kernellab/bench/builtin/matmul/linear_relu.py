"""A linear layer with ReLU, in the Model form: the weight is transposed."""

import torch


class Model(torch.nn.Module):
    def __init__(self, features: int, out: int):
        super().__init__()
        self.linear = torch.nn.Linear(features, out)

    def forward(self, x):
        return torch.relu(self.linear(x))


def get_inputs():
    return [torch.randn(1024, 512)]


def get_init_inputs():
    return [512, 1024]
