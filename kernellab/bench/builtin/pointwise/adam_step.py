"""One Adam step: four inputs, three outputs, one pass over memory."""

import torch

from kernellab import Dim

N = Dim("N", 1, 1 << 26)


def reference(p, g, m, v, lr: float = 1e-3, beta1: float = 0.9, beta2: float = 0.999, eps: float = 1e-8):
    m = beta1 * m + (1 - beta1) * g
    v = beta2 * v + (1 - beta2) * g * g
    return p - lr * m / (torch.sqrt(v) + eps), m, v


def inputs(N=4194304):
    return (torch.randn(N), torch.randn(N), torch.randn(N), torch.rand(N))
