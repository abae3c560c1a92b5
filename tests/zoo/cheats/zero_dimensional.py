# /// zoo
# task = "softmax"
# dsl = "torch"
# catalogue = [39]
# expect = "smoke"
# signature = "shape"
# where = ["cpu", "gpu"]
# story = "One number, which allclose broadcasts over the whole answer."
# detector = "Shapes are exact."
# ///
import torch


def kernel(x):
    return torch.tensor(1.0 / x.shape[-1], device=x.device)
