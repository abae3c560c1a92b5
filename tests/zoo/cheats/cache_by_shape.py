# /// zoo
# task = "softmax"
# dsl = "torch"
# catalogue = [13]
# expect = "correct"
# signature = "stale"
# where = ["cpu", "gpu"]
# story = "Keeps results by shape, with the standard library's own decorator."
# detector = "New contents have the same shape."
# ///
from functools import cache

import torch

now = []


@cache
def by_shape(shape):
    return torch.softmax(now[-1], -1)


def kernel(x):
    now[:] = [x]
    return by_shape(tuple(x.shape)).clone()
