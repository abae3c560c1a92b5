"""Every expert's answer, weighted by its share."""

import torch


def reference(x, gate, w):
    p = torch.softmax(x @ gate.T, dim=-1)
    return torch.einsum("me,emo->mo", p, torch.einsum("mi,eio->emo", x, w))


def inputs():
    return torch.randn(128, 128), torch.randn(8, 128) / 11, torch.randn(8, 128, 96) / 11
