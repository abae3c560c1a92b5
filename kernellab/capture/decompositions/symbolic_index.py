"""Python's indexing and padding where a number of the index is a symbol, which torch would make a plain number."""

# mypy: disable-error-code="no-any-return"
# NotImplemented is how a function leaves an operation whole
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def place(x: Any, index: Any) -> Any:
    """Return ``x[index]`` if it contains symbolic numbers: Python's own indexing would turn them into plain numbers."""
    view = _view(x, index)
    return NotImplemented if view is None else view


def write(x: Any, index: Any, value: Any) -> Any:
    """Execute ``x[index] = value`` in the same way."""
    view = _view(x, index)
    if view is None:
        return NotImplemented
    return view.copy_(value) if isinstance(value, torch.Tensor) else view.fill_(value)


def _view(x: Any, index: Any) -> Any:
    items = index if isinstance(index, tuple) else (index,)
    is_view = all(i is None or i is ... or type(i) in (int, slice, torch.SymInt) for i in items)
    if not is_view or not any(isinstance(i, torch.SymInt) for i in items):
        return None
    rest = x.dim() - sum(i is not None and i is not ... for i in items)
    plain_items, dim = [], 0
    selects: list[tuple[int, Any]] = []  # dimensions of the plain view, and the symbol at which each is selected
    for item in items:
        if isinstance(item, torch.SymInt):
            plain_items.append(slice(None))
            selects.append((dim, item))
            dim += 1
        else:
            plain_items.append(item)
            dim += rest if item is ... else not isinstance(item, int)
    view = x[tuple(plain_items)]
    for dim, item in reversed(selects):
        view = torch.select(view, dim, item)
    return view


def pad(input: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Tensor:
    """Pad circularly, dimension by dimension; torch writes the parts into an empty tensor one by one."""
    if mode != "circular" or not all(isinstance(n, int) and n >= 0 for n in pad):
        return NotImplemented
    for k, (before, behind) in enumerate(zip(pad[::2], pad[1::2], strict=True)):
        dim, length = input.dim() - 1 - k, input.shape[-1 - k]
        ends = input.narrow(dim, length - before, before), input.narrow(dim, 0, behind)
        input = torch.cat([*ends[: before > 0], input, *ends[2 - (behind > 0) :]], dim) if before + behind else input
    return input
