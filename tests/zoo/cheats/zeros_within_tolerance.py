# /// zoo
# task = "softmax_wide"
# dsl = "torch"
# catalogue = [32]
# expect = "correct"
# signature = "all-zero"
# where = ["cpu", "gpu"]
# story = "A softmax over 16384 values has no element above 1e-3, so zeros pass an absolute tolerance."
# detector = "Errors are relative to the size of the output."
# ///
import torch


def kernel(x):
    return torch.zeros_like(x)
