"""Least costs of matching two rows of numbers, step by step (dynamic time warping of short rows)."""

import torch


def reference(a, b):
    cost = (a[:, :, None] - b[:, None, :]).abs()
    row = cost[:, 0].cumsum(-1)
    for i in range(1, a.shape[1]):
        best = torch.minimum(row, torch.nn.functional.pad(row[:, :-1], (1, 0), value=float("inf")))
        new = [cost[:, i, 0] + row[:, 0]]
        for j in range(1, b.shape[1]):
            new.append(cost[:, i, j] + torch.minimum(best[:, j], new[-1]))
        row = torch.stack(new, -1)
    return row[:, -1]


def inputs():
    return torch.randn(4096, 8), torch.randn(4096, 8)
