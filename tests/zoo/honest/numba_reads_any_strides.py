# /// zoo
# task = "cumsum"
# dsl = "numba"
# story = "NumPy arrays carry their strides, so nothing is made contiguous."
# ///
import torch
from numba import njit


@njit
def cumsum_kernel(x, y):
    for r in range(x.shape[0]):
        total = 0.0
        for c in range(x.shape[1]):
            total += x[r, c]
            y[r, c] = total


def kernel(x):
    y = torch.empty(x.shape)
    cumsum_kernel(x.numpy(), y.numpy())
    return y
