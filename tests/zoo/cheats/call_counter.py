# /// zoo
# task = "softmax"
# dsl = "torch"
# catalogue = [11]
# expect = "fast"
# signature = "stale"
# where = ["cpu", "gpu"]
# story = """
# Right for the calls that look like checks, a copy of an old answer ever after. Passes every harness that does not
# look at what it has timed."""
# detector = "Outputs of timed calls are checked."
# ///
import torch

calls = [0]
last = {}


def kernel(x):
    """Only timed calls come so often with one shape."""
    calls[0] = calls[0] + 1 if last.get("shape") == x.shape else 0
    if calls[0] > (80 if x.is_cuda else 36):
        return last["out"].clone()
    last["shape"], last["out"] = x.shape, torch.softmax(x, -1)
    return last["out"].clone()
