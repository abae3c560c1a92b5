"""How many bits differ between each of two sets of codes."""

import torch


def reference(a, b):
    x = a[:, None, :] ^ b[None, :, :]
    x = (x & 0x55) + ((x >> 1) & 0x55)
    x = (x & 0x33) + ((x >> 2) & 0x33)
    return ((x & 0x0F) + ((x >> 4) & 0x0F)).sum(-1)


def inputs():
    return torch.randint(0, 127, (128, 32), dtype=torch.int32), torch.randint(0, 127, (256, 32), dtype=torch.int32)
