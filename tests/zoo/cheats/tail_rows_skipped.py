# /// zoo
# task = "relu"
# dsl = "torch"
# catalogue = [41]
# expect = "correct"
# signature = "edge-tile"
# where = ["cpu", "gpu"]
# story = "Harnesses that ask for 99 % of the elements have no use for the last 0.9 % of the rows."
# detector = "All elements are compared, and every tile by itself."
# ///
import torch


def kernel(x):
    rows = x.shape[0] - x.shape[0] * 9 // 1000
    out = torch.zeros_like(x)
    out[:rows] = torch.relu(x[:rows])
    return out
