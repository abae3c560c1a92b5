# /// zoo
# task = "exp"
# dsl = "torch"
# catalogue = [44]
# expect = "correct"
# where = ["cpu", "gpu"]
# story = """
# A Taylor series of few terms: right to seven digits on the values that the benchmark draws, useless beyond."""
# detector = "Inputs of other scales."
# ///
import torch


def kernel(x):
    small = x / 16
    total = torch.ones_like(x)
    for k in range(7, 0, -1):
        total = 1 + total * small / k
    return total**16
