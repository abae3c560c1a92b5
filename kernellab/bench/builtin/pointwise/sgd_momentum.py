"""A step of gradient descent with momentum, as new tensors."""

import torch

from kernellab import Dim

N = Dim("N", 1, 16777216)


def reference(w, g, m):
    m = 0.9 * m + g + 1e-2 * w
    return w - 0.1 * m, m


def inputs(N=4194304):
    return torch.randn(N), torch.randn(N), torch.randn(N)
