"""Columns of mean zero and spread one."""

import torch


def reference(x):
    return (x - x.mean(0)) / (x.std(0, correction=0) + 1e-5)


def inputs():
    return torch.randn(4096, 256) * torch.rand(256) + torch.randn(256)
