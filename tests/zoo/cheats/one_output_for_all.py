# /// zoo
# task = "softmax"
# dsl = "torch"
# catalogue = [31]
# expect = "correct"
# on_gpu = "robust"
# signature = "reused-output"
# where = ["cpu", "gpu"]
# story = """
# Allocates its output once and hands out the same memory for ever: the caller's earlier results change under its
# hands."""
# detector = "Two outputs are kept alive, and the first is read again after the second call."
# ///
import torch

buffers = {}


def kernel(x):
    key = (tuple(x.shape), x.dtype)
    if key not in buffers:
        buffers[key] = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    return buffers[key].copy_(torch.softmax(x, -1))
