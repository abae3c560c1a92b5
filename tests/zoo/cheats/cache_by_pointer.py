# /// zoo
# task = "softmax"
# dsl = "torch"
# catalogue = [13]
# expect = "correct"
# signature = "stale"
# where = ["cpu", "gpu"]
# story = "Keeps results by the address of the input. Benchmarks that time the same tensors again see a lookup."
# detector = "New contents lie at the same address."
# ///
import torch

memory = {}


def kernel(x):
    key = (x.data_ptr(), tuple(x.shape))
    if key not in memory:
        memory[key] = torch.softmax(x, -1)
    return memory[key].clone()
