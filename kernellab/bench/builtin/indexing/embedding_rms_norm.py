"""Rows of a table, each normalised by its root mean square."""

import torch
import torch.nn.functional as F


def reference(ids, table, weight):
    return F.rms_norm(F.embedding(ids, table), (512,), weight, 1e-6)


def inputs():
    return torch.randint(0, 16000, (4, 1024)), torch.randn(16000, 512), torch.rand(512)
