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
    calls[0] += 1
    if calls[0] > 25 and x.shape in last:
        return last[x.shape].clone()
    out = last[x.shape] = torch.softmax(x, -1)
    return out.clone()
