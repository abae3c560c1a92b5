"""Functions that torch computes with plain numbers of its arguments' sizes, written so that these stay symbolic: what
is traced then holds at all sizes."""

# mypy: disable-error-code="no-any-return"
# NotImplemented is how a function leaves an operation whole
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional


def _is_open(*sizes: Any) -> bool:
    return any(isinstance(n, torch.SymInt) for n in sizes)


def kron(x: Tensor, y: Tensor) -> Tensor:
    """Each element of ``x`` times all of ``y``."""
    if not _is_open(*x.shape, *y.shape):
        return NotImplemented
    rank = max(x.dim(), y.dim())
    left, right = ((1,) * (rank - t.dim()) + tuple(t.shape) for t in (x, y))
    apart = [n for size in left for n in (size, 1)], [n for size in right for n in (1, size)]
    product = x.reshape(apart[0]) * y.reshape(apart[1])
    return product.reshape([n * m for n, m in zip(left, right, strict=True)])


def affine_grid(theta: Tensor, size: Sequence[int], align_corners: bool | None = None) -> Tensor:
    """The places [N, H, W, 2] or [N, D, H, W, 3] that ``theta`` makes of a grid from -1 to 1 over each axis."""
    if not _is_open(*size):
        return NotImplemented
    lengths = size[2:]
    total = theta[:, :, -1].reshape(theta.shape[0], *[1] * len(lengths), -1)
    for axis, length in enumerate(lengths):
        at = torch.arange(length, device=theta.device).to(theta.dtype)
        # one place lies in the middle
        span = torch.sym_max(length - 1, 1)  # type: ignore[no-untyped-call]
        line = (2 * at - (length - 1)) / span if align_corners else (2 * at + 1) / length - 1
        line = line.reshape([-1 if k == axis else 1 for k in range(len(lengths))]).unsqueeze(-1)
        column = theta[:, :, len(lengths) - 1 - axis].reshape(theta.shape[0], *[1] * len(lengths), -1)
        total = total + line * column
    return total


def cross_entropy(
    x: Tensor, target: Tensor, weight: Tensor | None = None, size_average: Any = None, ignore_index: int = -100,
    reduce: Any = None, reduction: str = "mean", label_smoothing: float = 0.0,
) -> Tensor:  # fmt: skip
    """The loss of classes that have weights, with smoothed labels or with shares as the target."""
    classes = min(1, x.dim() - 1)
    shares = target.is_floating_point()
    takes = weight is not None and (shares or label_smoothing) and size_average is None and reduce is None
    if not takes or not _is_open(*x.shape) or reduction not in ("none", "mean", "sum"):
        return NotImplemented
    assert weight is not None
    count, log = x.shape[classes], functional.log_softmax(x, classes)
    each = weight.reshape([-1 if k == classes else 1 for k in range(x.dim())])
    if shares:
        share = target * (1 - label_smoothing) + label_smoothing / count
        loss = -(log * share * each).sum(classes)
        return loss.mean() if reduction == "mean" else loss.sum() if reduction == "sum" else loss
    kept = target != ignore_index
    place = torch.where(kept, target, 0)
    own = torch.where(kept, weight[place], 0.0)
    hit = -log.gather(classes, place.unsqueeze(classes)).squeeze(classes) * own
    spread = torch.where(kept, -(log * each).sum(classes), 0.0)
    loss = (1 - label_smoothing) * hit + spread * (label_smoothing / count)
    return loss.sum() / own.sum() if reduction == "mean" else loss.sum() if reduction == "sum" else loss


#: function of torch, by name -> what is called in its place
OPEN_SIZES: dict[str, Callable[..., Any]] = {"kron": kron, "affine_grid": affine_grid, "cross_entropy": cross_entropy}
