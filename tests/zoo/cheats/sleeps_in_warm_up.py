# /// zoo
# task = "softmax"
# dsl = "torch"
# catalogue = [10]
# expect = "fast"
# where = ["cpu", "gpu"]
# story = """
# Is slow in the first calls, so that a timer which fits its repetitions to a budget measures only a few lucky ones."""
# detector = "A fixed least number of pairs of timed calls."
# harmless = """
# The least number of timed calls does not depend on how long the first ones took, and all of them are checked."""
# ///
import time

import torch

calls = [0]


def kernel(x):
    calls[0] += 1
    if calls[0] < 12:
        time.sleep(0.03)
    return torch.softmax(x, -1)
