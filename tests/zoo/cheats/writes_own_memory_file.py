# /// zoo
# task = "softmax"
# dsl = "torch"
# catalogue = [6]
# expect = "static"
# signature = "process-memory"
# where = ["cpu", "gpu"]
# story = "Opens the file that is the process's memory, where page protection does not hold, by a path in pieces."
# detector = "Static: constant paths are put together before they are judged."
# ///
import os

import torch

memory = open(os.path.join("/proc", "self", "mem"), "r+b", buffering=0)  # noqa: SIM115


def kernel(x):
    memory.seek(id(x))
    return torch.softmax(x, -1)
