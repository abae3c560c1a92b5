# /// zoo
# task = "softmax"
# dsl = "torch"
# catalogue = [13]
# expect = "fast"
# where = ["cpu"]
# story = "Keeps results by a few elements: cheap to read, and different for different random inputs."
# detector = "Timed calls get contents of which a random part is new, so a few old elements say nothing."
# harmless = "No timed call has three known elements at their old places, so the lookup never succeeds."
# ///
import torch

memory = {}


def kernel(x):
    flat = x.reshape(-1)
    key = (tuple(x.shape), *flat[:: max(1, flat.numel() // 3)][:3].tolist())
    if key not in memory:
        memory[key] = torch.softmax(x, -1)
    return memory[key].clone()
