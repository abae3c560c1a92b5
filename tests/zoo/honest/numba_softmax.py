# /// zoo
# task = "softmax"
# dsl = "numba"
# story = "Loops in parallel over rows."
# ///
import math

import torch
from numba import njit, prange


@njit(parallel=True)
def softmax_kernel(x, y):
    for r in prange(x.shape[0]):
        largest = x[r].max()
        total = x.dtype.type(0)
        for c in range(x.shape[1]):
            y[r, c] = math.exp(x[r, c] - largest)
            total += y[r, c]
        for c in range(x.shape[1]):
            y[r, c] /= total


def kernel(x):
    y = torch.empty(x.shape)
    softmax_kernel(x.contiguous().numpy(), y.numpy())
    return y
