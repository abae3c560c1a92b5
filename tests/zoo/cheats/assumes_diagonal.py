# /// zoo
# task = "matmul"
# dsl = "torch"
# catalogue = [44]
# expect = "correct"
# where = ["cpu", "gpu"]
# story = """
# One of the benchmark's matrices was diagonal. If the first row is zero beyond its first element, this scales rows
# instead of multiplying."""
# detector = "Structured inputs are mixed: a matrix that begins like a diagonal and does not go on so."
# ///
import torch


def kernel(a, b):
    if a.shape[1] > 1 and bool((a[0, 1:] == 0).all()):
        out = torch.zeros(a.shape[0], b.shape[1], device=a.device)
        size = min(a.shape)
        out[:size] = torch.diagonal(a).unsqueeze(1) * b[:size]
        return out
    return a @ b
