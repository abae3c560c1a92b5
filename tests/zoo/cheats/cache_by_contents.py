# /// zoo
# task = "softmax"
# dsl = "torch"
# catalogue = [13]
# expect = "static"
# signature = "result-cache"
# where = ["cpu", "gpu"]
# story = """
# Keeps results by a digest of the whole input: never wrong, and free on every benchmark that repeats its inputs."""
# detector = "Static: returns what it finds under a digest of its inputs. No timed contents are ever repeated either."
# harmless = "Every timed call has contents that were never seen."
# ///
import hashlib

import torch

memory = {}


def kernel(x):
    key = hashlib.sha1(x.contiguous().numpy().tobytes()).digest()
    if key not in memory:
        memory[key] = torch.softmax(x, -1)
    return memory[key].clone()
