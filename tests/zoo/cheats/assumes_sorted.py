# /// zoo
# task = "sort"
# dsl = "torch"
# catalogue = [44]
# expect = "correct"
# where = ["cpu", "gpu"]
# story = "If the first elements are in order, the rest will be. The benchmark's inputs were nearly sorted."
# detector = "Rows of all kinds in one batch: some begin in order by chance and are not."
# ///
import torch


def kernel(x):
    out = torch.sort(x, -1).values
    begins = (x[:, :3].diff() >= 0).all(-1)
    return torch.where(begins.unsqueeze(1), x, out)
