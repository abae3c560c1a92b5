"""Where each row stands in its expert's queue."""

import torch


def reference(expert):
    hot = (expert[:, None] == torch.arange(16, device=expert.device)).long()
    return ((hot.cumsum(0) - 1) * hot).sum(-1)


def inputs():
    return torch.randint(0, 16, (2048,))
