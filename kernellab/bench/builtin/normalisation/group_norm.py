"""Group normalisation, in the Model form."""

import torch


class Model(torch.nn.Module):
    def __init__(self, groups: int, features: int):
        super().__init__()
        self.gn = torch.nn.GroupNorm(groups, features)

    def forward(self, x):
        return self.gn(x)


def get_inputs():
    return [torch.randn(16, 64, 96, 96)]


def get_init_inputs():
    return [8, 64]
