"""Pooling to a number of windows: their lengths differ where it does not divide the input's, or where either is
symbolic."""

# mypy: disable-error-code="no-any-return"
# NotImplemented is how a function leaves an operation whole
from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils._sympy.functions import FloorDiv

#: longest window that is read element by element; longer ones are masked out of the whole row
_TAPS = 32


def _pooled(join: str, rank: int, x: Tensor, output_size: Any, return_indices: bool = False) -> Tensor:
    """Return [..., *output_size]: the mean (``join`` is sum) or the largest element of each window."""
    asked = [output_size] * rank if not isinstance(output_size, Sequence) else list(output_size)
    if return_indices or len(asked) != rank or x.dim() < rank or not x.is_floating_point():
        return NotImplemented
    lengths = x.shape[-rank:]
    counts = [n if count is None else count for n, count in zip(lengths, asked, strict=True)]
    if all(type(n) is int and type(count) is int and (not count or n % count == 0)
           for n, count in zip(lengths, counts, strict=True)):  # fmt: skip
        return NotImplemented
    for axis, count in enumerate(counts, x.dim() - rank):
        x = _along(x.movedim(axis, -1), count, join).movedim(-1, axis)
    return x


def _along(x: Tensor, count: Any, join: str) -> Tensor:
    """Pool the last dimension to ``count`` windows."""
    length: Any = x.shape[-1]
    at = torch.arange(count, device=x.device)
    first, end = at * length // count, ((at + 1) * length + count - 1) // count
    nothing = 0.0 if join == "sum" else float("-inf")
    taps = _longest(length, count)
    if taps is None:
        place = torch.arange(length, device=x.device)
        inside = (place >= first.unsqueeze(-1)) & (place < end.unsqueeze(-1))
        values = torch.where(inside, x.unsqueeze(-2), nothing)
        total = values.sum(-1) if join == "sum" else values.amax(-1)
    else:
        total = x[..., first]
        for k in range(1, taps):
            value = x[..., (first + k).clamp(max=length - 1)]
            value = torch.where(first + k < end, value, nothing)
            total = total + value if join == "sum" else torch.maximum(total, value)
    return total / (end - first) if join == "sum" else total


def _longest(length: Any, count: Any) -> int | None:
    """Return the length of the longest window; None if it is not known or above the limit."""
    if isinstance(length, int) and isinstance(count, int):
        longest = max(-(-(k + 1) * length // count) - k * length // count for k in range(count))
        return longest if longest <= _TAPS else None
    if not isinstance(length, torch.SymInt) or not isinstance(count, torch.SymInt):
        return None
    whole, share = length.node.expr, count.node.expr
    if isinstance(share, FloorDiv) and share.args[0] == whole and share.args[1].is_number:
        # n is k * count and at most k - 1 more: the longest window is the only one of 2 k - 1 elements
        longest = 2 * int(share.args[1]) - 1
        return longest if longest <= _TAPS else None
    return None


#: function of torch, by name -> function that is called instead
ADAPTIVE: dict[str, Callable[..., Any]] = {
    f"{prefix}adaptive_{kind}_pool{rank}d": partial(_pooled, join, rank)
    for kind, join in (("avg", "sum"), ("max", "max"))
    for rank in (1, 2, 3)
    for prefix in ("", "_")
}
