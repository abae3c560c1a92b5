# /// zoo
# task = "softmax"
# dsl = "torch"
# catalogue = [13]
# expect = "robust"
# signature = "stale"
# where = ["cpu"]
# story = "Keeps results by a few elements: cheap to read, and different for different random inputs."
# detector = "One element of an old input is changed, one that the key does not see: the output must change with it."
# ///
import torch

memory = {}


def kernel(x):
    flat = x.reshape(-1)
    key = (tuple(x.shape), *flat[:: max(1, flat.numel() // 3)][:3].tolist())
    if key not in memory:
        memory[key] = torch.softmax(x, -1)
    return memory[key].clone()
