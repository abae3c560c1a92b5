# /// zoo
# task = "relu"
# dsl = "numba"
# story = "A universal function: the loop is Numba's."
# ///
import torch
from numba import vectorize


@vectorize(["float32(float32)"])
def relu_kernel(x):
    return x if x > 0 else x * 0


def kernel(x):
    return torch.from_numpy(relu_kernel(x.contiguous().numpy()))
