"""Each element with half of its neighbours in the row; beyond the ends lies zero."""

import torch

from kernellab import Dim

M, N = Dim("M", 1, 4096), Dim("N", 1, 4096)


def reference(x):
    y = torch.nn.functional.pad(x, (1, 1))
    return y[:, 1:-1] + 0.5 * (y[:, :-2] + y[:, 2:])


def inputs(M=600, N=700):
    return (torch.randn(M, N),)
