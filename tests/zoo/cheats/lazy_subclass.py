# /// zoo
# task = "softmax"
# dsl = "torch"
# catalogue = [3]
# expect = "smoke"
# signature = "output"
# where = ["cpu", "gpu"]
# story = """
# A Tensor subclass that computes when somebody first looks at it, which is after the clock. Harnesses that call
# allclose on it trigger the work unpaid."""
# detector = "Only a plain tensor is an output."
# ///
import torch


class Later(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        args = [torch.softmax(a.as_subclass(torch.Tensor), -1) if isinstance(a, cls) else a for a in args]
        return function(*args, **(kwargs or {}))


def kernel(x):
    return x.as_subclass(Later)
