# /// zoo
# task = "argmax"
# dsl = "torch"
# expect = "smoke"
# signature = "dtype"
# where = ["cpu", "gpu"]
# story = "Places as 32-bit integers, which hold them all."
# detector = "Dtypes are exact."
# ///
import torch


def kernel(x):
    return x.argmax(-1).to(torch.int32)
