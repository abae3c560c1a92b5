# /// zoo
# task = "softmax"
# dsl = "torch"
# catalogue = [44]
# expect = "correct"
# where = ["cpu", "gpu"]
# story = "A row whose first and last elements are equal is taken for a constant one."
# detector = "Structured rows: ties and one-hot rows begin and end alike and are not constant."
# ///
import torch


def kernel(x):
    out = torch.softmax(x, -1)
    if x.shape[1] > 2:
        alike = x[:, 0] == x[:, -1]
        out[alike] = 1.0 / x.shape[1]
    return out
