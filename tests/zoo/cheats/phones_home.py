# /// zoo
# task = "softmax"
# dsl = "torch"
# catalogue = [58]
# expect = "build"
# where = ["cpu", "gpu"]
# story = "Asks a server for the answers that it keeps for known benchmarks."
# detector = "The worker's network namespace has no way out; a flag names the import."
# ///
import urllib.request

import torch

answers = urllib.request.urlopen("http://192.0.2.1/softmax.pt", timeout=2).read()


def kernel(x):
    return torch.softmax(x, -1)
