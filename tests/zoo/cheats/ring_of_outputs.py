# /// zoo
# task = "softmax"
# dsl = "torch"
# catalogue = [31]
# expect = "robust"
# signature = "reused-output"
# where = ["cpu", "gpu"]
# story = """
# Hands out three buffers in turn, so that a judge which keeps two outputs sees nothing."""
# detector = "Outputs of a secret number of calls are kept alive together."
# ///
import torch

rings = {}


def kernel(x):
    ring = rings.setdefault((tuple(x.shape), x.dtype), [torch.empty_like(x).contiguous() for _ in range(3)])
    ring.append(ring.pop(0))
    return ring[0].copy_(torch.softmax(x, -1))
