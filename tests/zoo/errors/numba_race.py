# /// zoo
# task = "histogram"
# dsl = "numba"
# catalogue = [48]
# expect = "correct"
# threads = 4
# story = "Counts in parallel into one array: increments are lost when two threads meet."
# detector = "Integers are exact."
# ///
import torch
from numba import njit, prange


@njit(parallel=True)
def count_kernel(x, counts):
    for i in prange(x.size):
        counts[x[i]] += 1


def kernel(x):
    counts = torch.zeros(64, dtype=torch.int64)
    count_kernel(x.contiguous().numpy(), counts.numpy())
    return counts
