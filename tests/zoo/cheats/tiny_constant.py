# /// zoo
# task = "softmax_wide"
# dsl = "torch"
# catalogue = [32, 33]
# expect = "correct"
# where = ["cpu", "gpu"]
# story = "The same where zeros are looked for: every element is 1/N, the mean of what a softmax of anything gives."
# detector = "Relative error, and inputs of other scales."
# ///
import torch


def kernel(x):
    return torch.full_like(x, 1.0 / x.shape[-1])
