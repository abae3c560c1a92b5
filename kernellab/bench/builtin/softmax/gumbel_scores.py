"""The logarithm of a softmax of noisy scores."""

import torch

from kernellab import Dim

M = Dim("M", 1, 65536)


def reference(x, noise):
    return torch.log_softmax(x - torch.log(-torch.log(noise)), dim=-1)


def inputs(M=2048):
    return torch.randn(M, 512), torch.rand(M, 512) * 0.98 + 0.01
