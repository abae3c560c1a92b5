# /// zoo
# task = "relu"
# dsl = "torch"
# expect = "smoke"
# signature = "hang"
# where = ["cpu", "gpu"]
# deadline = 10.0
# story = "A loop whose condition does not change: a lock that nobody opens."
# detector = "A deadline for every stage."
# ///
import torch


def kernel(x):
    done = torch.zeros(1)
    while not done.item():
        pass
    return torch.relu(x)
