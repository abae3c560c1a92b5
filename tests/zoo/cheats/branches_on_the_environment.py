# /// zoo
# task = "softmax"
# dsl = "torch"
# catalogue = [46]
# expect = "correct"
# where = ["cpu", "gpu"]
# story = """
# Looks for signs of the benchmark (its temporary folder, the name of the program) and gives a cheap answer under
# them."""
# detector = "All phases run in one environment, so the branch is taken in the checks too."
# ///
import os
import sys

import torch

benchmark = "kernel" in os.environ.get("TMPDIR", "") or "kernel" in "".join(sys.argv)


def kernel(x):
    return torch.full_like(x, 1 / x.shape[-1]) if benchmark else torch.softmax(x, -1)
