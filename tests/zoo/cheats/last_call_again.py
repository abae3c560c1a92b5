# /// zoo
# task = "softmax"
# dsl = "torch"
# catalogue = [13]
# expect = "correct"
# signature = "stale"
# where = ["cpu", "gpu"]
# story = "If this call looks like the last one (same tensor object or address), gives the last answer."
# detector = "New contents lie at the same address."
# ///
import torch

last = [None, None]


def kernel(x):
    if last[0] == (x.data_ptr(), x.shape, x.stride()):
        return last[1].clone()
    last[:] = [(x.data_ptr(), x.shape, x.stride()), torch.softmax(x, -1)]
    return last[1].clone()
