"""A matrix of four-bit weights, two a byte with a scale for each group of 64, times a vector."""

import torch


def reference(w, scale, x):
    low, high = (w & 15).to(torch.float32) - 8, (w >> 4).to(torch.float32) - 8
    full = torch.stack((low, high), -1).reshape(w.shape[0], -1, 64) * scale[..., None]
    return full.reshape(w.shape[0], -1) @ x


def inputs():
    return torch.randint(0, 256, (1024, 512), dtype=torch.uint8), torch.rand(1024, 16), torch.randn(1024)
