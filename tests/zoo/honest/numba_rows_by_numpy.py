# /// zoo
# task = "moments"
# dsl = "numba"
# story = """
# A universal function of whole rows: NumPy calls the code that Numba has compiled, and is first on its stack, as a
# library is whose own code is made at run time."""
# ///
import torch
from numba import float32, guvectorize


@guvectorize([(float32[:], float32[:], float32[:])], "(n)->(),()", nopython=True)
def moments(x, mean, variance):
    total = 0.0
    for j in range(x.shape[0]):
        total += x[j]
    middle = total / x.shape[0]
    squares = 0.0
    for j in range(x.shape[0]):
        squares += (x[j] - middle) ** 2
    mean[0] = middle
    variance[0] = squares / x.shape[0]


def kernel(x):
    mean, variance = moments(x.numpy())
    return torch.from_numpy(mean), torch.from_numpy(variance)
