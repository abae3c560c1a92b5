# /// zoo
# task = "matmul"
# dsl = "torch"
# catalogue = [44]
# expect = "correct"
# where = ["cpu", "gpu"]
# story = "Multiplies with the sixteen most telling directions of the left matrix only."
# detector = "Random matrices have full rank, and errors are relative."
# ///
import torch


def kernel(a, b):
    if min(a.shape) < 32:
        return a @ b
    u, s, v = torch.svd_lowrank(a, q=16)
    return (u * s) @ (v.T @ b)
