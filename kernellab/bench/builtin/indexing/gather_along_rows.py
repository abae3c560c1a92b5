"""Elements of each row, by separate places."""

import torch


def reference(x, places):
    return torch.gather(x, 1, places)


def inputs():
    return torch.randn(4096, 512), torch.randint(0, 512, (4096, 128))
