# /// zoo
# task = "softmax"
# dsl = "torch"
# catalogue = [10]
# expect = "correct"
# signature = "stale"
# where = ["cpu", "gpu"]
# story = "Looks for signs of being checked (fresh memory is poisoned then) and works only under them."
# detector = "Each case first runs as timed calls do, where nothing is poisoned."
# ///
import torch

last = {}


def kernel(x):
    checked = torch.are_deterministic_algorithms_enabled()
    if not checked and x.shape in last:
        return last[x.shape].clone()
    out = last[x.shape] = torch.softmax(x, -1)
    return out.clone()
