# /// zoo
# task = "histogram"
# dsl = "numba"
# story = "One loop, integers."
# ///
import numpy as np
import torch
from numba import njit


@njit
def count_kernel(x, counts):
    for value in x:
        counts[value] += 1


def kernel(x):
    counts = np.zeros(64, dtype=np.int64)
    count_kernel(x.contiguous().numpy(), counts)
    return torch.from_numpy(counts)
