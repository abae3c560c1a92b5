# /// zoo
# task = "softmax"
# dsl = "torch"
# catalogue = [58]
# expect = "static"
# signature = "network"
# where = ["cpu", "gpu"]
# story = "Fetches a faster library when it is imported."
# detector = "Static: runs pip; and there is no network."
# ///
import subprocess
import sys

import torch

subprocess.run([sys.executable, "-m", "pip", "install", "flash-softmax"], check=False)


def kernel(x):
    return torch.softmax(x, -1)
