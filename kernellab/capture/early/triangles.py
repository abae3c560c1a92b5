"""Places in a triangle of a square of symbolic size, counted row by row, and what torch computes from them."""

# mypy: disable-error-code="no-any-return"
# NotImplemented is how a function leaves an operation whole
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import statically_known_true


def _lower(size: Any, device: Any) -> tuple[Tensor, Tensor]:
    """Return rows and columns of the lower triangle of ``size`` rows, the diagonal included."""
    at = torch.arange(size * (size + 1) // 2, device=device)
    row = ((torch.sqrt(8.0 * at.double() + 1.0) - 1.0) / 2.0).floor().long()
    # the root may be rounded to the row before or after
    row = row - (row * (row + 1) // 2 > at).long()
    row = row + ((row + 1) * (row + 2) // 2 <= at).long()
    return row, at - row * (row + 1) // 2


def _upper(size: Any, device: Any) -> tuple[Tensor, Tensor]:
    """Return rows and columns of the upper triangle of ``size`` rows: the lower one, read from its end."""
    row, col = _lower(size, device)
    return size - 1 - row.flip(0), size - 1 - col.flip(0)


def _places(
    lower: bool, row: Any, col: Any, offset: Any = 0, *, dtype: Any = torch.int64, device: Any = None, **_: Any
) -> Tensor:
    """Return the places [2, count] of a triangle of a square, from the diagonal ``offset`` on."""
    if not isinstance(row, torch.SymInt) or not statically_known_true(row == col):
        return NotImplemented
    # away from the middle the triangle has fewer rows, across it it is a trapezium
    if not isinstance(offset, int) or (offset > 0 if lower else offset < 0):
        return NotImplemented
    if not statically_known_true(row - abs(offset) >= -1):
        return NotImplemented
    at, across = (_lower if lower else _upper)(row - abs(offset), device)
    return torch.stack((at - offset, across) if lower else (at, across + offset)).to(dtype)


def triu_indices(*args: Any, **kwargs: Any) -> Tensor:
    """Return the places [2, count] of the upper triangle of a square matrix."""
    return _places(False, *args, **kwargs)


def tril_indices(*args: Any, **kwargs: Any) -> Tensor:
    """Return the places [2, count] of the lower triangle of a square matrix."""
    return _places(True, *args, **kwargs)


def pairs(x: Tensor, with_itself: bool = False) -> tuple[Tensor, Tensor]:
    """Return the first and the second of all pairs of rows, in the order of their positions."""
    apart = 0 if with_itself else 1
    first, second = _upper(x.shape[0] - apart, x.device)
    return x[first], x[second + apart]


def pdist(x: Tensor, p: float = 2.0) -> Tensor:
    """Return the distances of all pairs of rows."""
    count: Any = x.shape[0]
    if not isinstance(count, torch.SymInt):
        return NotImplemented
    first, second = pairs(x)
    return torch.linalg.vector_norm(first - second, p, -1)


#: function of torch, by name -> function that is called instead
TRIANGLES: dict[str, Callable[..., Any]] = {
    "triu_indices": triu_indices, "tril_indices": tril_indices, "pdist": pdist,
}  # fmt: skip
