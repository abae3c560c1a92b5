"""Scores of a plain and a turned part."""

import torch


def reference(qc, qr, kc, kr, v):
    s = (qc @ kc.transpose(-1, -2) + qr @ kr.transpose(-1, -2)) / 12
    return torch.softmax(s, dim=-1) @ v


def inputs():
    return (
        torch.randn(2, 4, 128, 128),
        torch.randn(2, 4, 128, 32),
        torch.randn(2, 4, 128, 128),
        torch.randn(2, 1, 128, 32),
        torch.randn(2, 4, 128, 128),
    )
