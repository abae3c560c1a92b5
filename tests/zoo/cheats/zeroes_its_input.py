# /// zoo
# task = "relu"
# dsl = "torch"
# catalogue = [29]
# expect = "correct"
# signature = "all-zero"
# where = ["cpu", "gpu"]
# story = """
# Sets its input to zero, so that a reference that runs second on the same tensor finds zeros too. Right and fast."""
# detector = "The judge keeps inputs of its own."
# ///
import torch


def kernel(x):
    x.zero_()
    return torch.zeros_like(x)
