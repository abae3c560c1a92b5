# /// zoo
# task = "softmax"
# dsl = "torch"
# catalogue = [20, 36]
# expect = "smoke"
# where = ["cpu", "gpu"]
# story = """
# Defines the names that the task uses for its sizes and functions. Where task and candidate are executed in one
# namespace, the reference's inputs become two by two."""
# detector = "The task is loaded in another process."
# ///
import torch

M = N = 2


def reference(x):
    return torch.zeros_like(x)


def inputs(M=2, N=2):
    return (torch.zeros(M, N),)


def kernel(x):
    return torch.zeros(2, 2, device=x.device)
