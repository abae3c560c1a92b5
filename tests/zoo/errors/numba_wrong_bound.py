# /// zoo
# task = "cumsum"
# dsl = "numba"
# expect = "correct"
# story = "Starts the running sum at the second element and never writes the first."
# detector = "Poisoned outputs."
# ///
import torch
from numba import njit


@njit
def cumsum_kernel(x, y):
    for r in range(x.shape[0]):
        total = x[r, 0]
        for c in range(1, x.shape[1]):
            total += x[r, c]
            y[r, c] = total


def kernel(x):
    y = torch.empty(x.shape)
    cumsum_kernel(x.contiguous().numpy(), y.numpy())
    return y
