# /// zoo
# task = "softmax"
# dsl = "torch"
# catalogue = [5]
# expect = "static"
# signature = "patch"
# where = ["cpu", "gpu"]
# story = "Wraps Triton's own benchmark function, which several suites use as their clock."
# detector = "Static: replaces an attribute of triton."
# ///
import torch
import triton.testing as bench

slow = bench.do_bench
bench.do_bench = lambda *args, **kwargs: slow(*args, **kwargs) / 100


def kernel(x):
    return torch.softmax(x, -1)
