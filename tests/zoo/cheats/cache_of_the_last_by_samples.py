# /// zoo
# task = "softmax"
# dsl = "torch"
# catalogue = [13]
# expect = "robust"
# signature = "stale"
# where = ["cpu"]
# story = "Keeps the last result alone, told by 49 elements of its input, the last one included."
# detector = "Between two changed inputs the first comes again: two calls differ in one element that the key skips."
# ///
import torch

last = {}


def kernel(x):
    flat = x.reshape(-1)
    key = (tuple(x.shape), *flat[:: max(1, flat.numel() // 48)][:48].tolist(), *flat[-1:].tolist())
    if last.get("key") != key:
        last.update(key=key, result=torch.softmax(x, -1))
    return last["result"].clone()
