"""What cross entropy passes back to its scores."""

import torch

from kernellab import Dim

M = Dim("M", 1, 65536)


def reference(x, y):
    p = torch.softmax(x, dim=-1)
    return (p - (torch.arange(x.shape[1], device=x.device) == y[:, None]).float()) / x.shape[0]


def inputs(M=2048):
    return torch.randn(M, 1000), torch.randint(0, 1000, (M,))
