# /// zoo
# task = "add"
# dsl = "torch"
# catalogue = [24, 47]
# expect = "correct"
# where = ["cpu", "gpu"]
# story = """
# Returns memory that was never written. Where the reference ran just before in the same process, its freed result
# lies there: a well known system reported a speedup of 150 for it."""
# detector = "The reference runs elsewhere, and fresh memory is poisoned."
# ///
import torch


def kernel(x, y):
    return torch.empty_like(x)
