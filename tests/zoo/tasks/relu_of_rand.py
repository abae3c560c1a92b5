"""A ReLU as many suites ask for it: fixed size, values in [0, 1), where it changes nothing."""

import torch


def reference(x):
    return torch.relu(x)


def inputs():
    return (torch.rand(128, 200),)
