# /// zoo
# task = "softmax"
# dsl = "torch"
# catalogue = [16]
# expect = "correct"
# where = ["cpu", "gpu"]
# story = """
# Writes its answers where the next process looks for them. A harness that seeds alike in both finds them fresh."""
# detector = "Writes land in a scratch of one process's life, seeds are secret, and contents are new."
# ///
import os

import torch

folder = os.environ.get("TMPDIR", "/tmp")


def kernel(x):
    path = f"{folder}/softmax-{'x'.join(map(str, x.shape))}.pt"
    if os.path.exists(path):
        return torch.load(path).to(x.device)
    out = torch.softmax(x, -1)
    torch.save(out, path)
    return out
