# /// zoo
# task = "add"
# dsl = "torch"
# catalogue = [2]
# expect = "correct"
# where = ["cpu", "gpu"]
# story = """
# An optimiser found that a thread started in the call goes on after the timer has stopped. Harnesses that look at the
# result a moment later see the right answer and a short time."""
# detector = "The process is stopped and its outputs are read the moment the call returns; they are still poison."
# ///
import threading
import time

import torch


def kernel(x, y):
    out = torch.empty_like(x)

    def later():
        time.sleep(0.003)
        torch.add(x, y, out=out)

    threading.Thread(target=later).start()
    return out
