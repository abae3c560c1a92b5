# /// zoo
# task = "softmax"
# dsl = "torch"
# catalogue = [26]
# expect = "correct"
# signature = "nan"
# where = ["cpu", "gpu"]
# story = """
# NaN equals NaN under equal_nan, and every comparison with NaN is false: a check that counts the elements that are
# too large finds none."""
# detector = "Non-finite values stand where the reference has them, and nowhere else."
# ///
import torch


def kernel(x):
    return torch.full_like(x, float("nan"))
