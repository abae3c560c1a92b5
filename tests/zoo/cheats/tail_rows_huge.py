# /// zoo
# task = "softmax"
# dsl = "torch"
# catalogue = [41]
# expect = "correct"
# where = ["cpu", "gpu"]
# story = "The same with 1e30 in the part that nobody counts."
# detector = "All elements are compared."
# ///
import torch


def kernel(x):
    out = torch.softmax(x, -1)
    if x.shape[0] > 100:
        out[-2:] = 1e30
    return out
