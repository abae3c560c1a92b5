# /// zoo
# task = "softmax"
# dsl = "torch"
# catalogue = [39, 43]
# expect = "smoke"
# signature = "dtype"
# where = ["cpu", "gpu"]
# story = "Answers in float16: half the memory traffic, and a comparison that promotes never notices."
# detector = "Dtypes are exact."
# ///
import torch


def kernel(x):
    return torch.softmax(x.half(), -1)
