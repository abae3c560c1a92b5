"""A running sum of exponentials, and a loss over the labels of a row."""

# mypy: disable-error-code="no-any-return"
# NotImplemented is how a function leaves an operation whole
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

#: elements of a block of a running sum of exponentials; chosen, not measured
_BLOCK = 32


def logcumsumexp(x: Tensor, dim: int) -> Tensor:
    """Return the log of a running sum of exponentials, each block of the row relative to its own largest element.

    A running sum relative to the row's largest element would lose values far below it, so the sum is relative to the
    running maximum m: the recurrence s_i = s_{i-1} exp(m_{i-1} - m_i) + exp(x_i - m_i) gives s_i as the sum of exp(x_j
    - m_i) over j <= i, a product with a triangle. A long row is split into blocks, whose totals form such a row again.
    """
    if x.dim() == 0 or not isinstance(x.shape[dim], int) or not x.is_floating_point():
        return NotImplemented
    rows = x.movedim(dim, -1)
    length = rows.shape[-1]
    if length > 4 * _BLOCK:
        rows = functional.pad(rows, (0, -length % _BLOCK), value=-math.inf)
        rows = rows.reshape(*rows.shape[:-1], -1, _BLOCK)
        inside = logcumsumexp(rows, -1)
        preceding = functional.pad(logcumsumexp(inside[..., -1], -1)[..., :-1], (1, 0), value=-math.inf)
        joined = torch.logaddexp(preceding.unsqueeze(-1), inside).flatten(-2)
        return joined[..., :length].movedim(-1, dim)
    highest = torch.cummax(rows, -1).values
    at = torch.arange(length, device=x.device)
    is_earlier = at.unsqueeze(0) <= at.unsqueeze(1)
    shift = torch.where(torch.isinf(highest), 0.0, highest)
    terms = torch.exp(rows.unsqueeze(-2) - shift.unsqueeze(-1))
    total = torch.where(is_earlier, terms, 0.0).sum(-1)
    return (torch.log(total) + shift).to(x.dtype).movedim(-1, dim)


def multilabel_margin_loss(x: Tensor, target: Tensor, reduction: int) -> tuple[Tensor, Tensor]:
    """Return the sum of max(0, 1 - x[j] + x[i]) / classes over a row's labels j (those before the first -1) and the
    classes i that are not labels, and which classes are labels.

    torch's own form counts class 0 as a label for each place from the first -1 on (torch 2.11).
    """
    rows, labels = (t if t.dim() == 2 else t.unsqueeze(0) for t in (x, target))
    classes = rows.shape[1]
    place = torch.arange(classes, device=x.device)
    counts = place < torch.where(labels == -1, place, classes).amin(-1, keepdim=True)
    is_label = (place == torch.where(counts, labels, -1).unsqueeze(-1)).any(1)
    margin = 1.0 - rows.gather(-1, torch.where(counts, labels, 0)).unsqueeze(-1) + rows.unsqueeze(1)
    margin = torch.where(counts.unsqueeze(-1) & ~is_label.unsqueeze(1), margin.clamp_min(0) / classes, 0.0)
    each = margin.sum((1, 2)).reshape(x.shape[:-1])
    loss = each.mean() if reduction == 1 else each.sum() if reduction == 2 else each
    return loss, is_label.to(x.dtype).reshape(target.shape)


#: operation of ATen -> function that is traced instead
SUMS: dict[str, Callable[..., Any]] = {
    "logcumsumexp.default": logcumsumexp, "multilabel_margin_loss_forward.default": multilabel_margin_loss,
}  # fmt: skip
