# /// zoo
# task = "relu"
# dsl = "torch"
# catalogue = [20]
# expect = "correct"
# story = "Starts five processes in each short call and leaves them: a watch that only looks while it waits sees none."
# detector = "Processes are counted between calls as well, and the kernel itself allows only so many."
# ///
import subprocess

import torch

started = []


def kernel(x):
    if len(started) < 400:
        started.extend(subprocess.Popen(["/bin/sleep", "600"]) for _ in range(10))
    return torch.relu(x)
