"""Products of the framework's low-level interface as products that the rules know: scaled eight-bit ones, and grouped.

``NotImplemented`` leaves an operation whole.
"""

# mypy: disable-error-code="no-any-return"
# NotImplemented is how a function leaves an operation whole
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

#: rows from which on the groups' rows are laid out in whole blocks, and rows of a block
_ROWS, _BLOCK = 256, 128


def scaled_mm(
    a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor, bias: Tensor | None = None,
    scale_result: Tensor | None = None, out_dtype: torch.dtype | None = None, use_fast_accum: bool = False,
) -> Tensor:  # fmt: skip
    """``a`` [M, K] times ``b`` [K, N], each times its scale: one, one a row or column, or one a block of either."""
    left, right = _scaled(a, scale_a), _scaled(b, scale_b)
    if left is None or right is None or scale_result is not None:
        return NotImplemented
    product = left @ right
    return (product if bias is None else product + bias).to(out_dtype or a.dtype)


def _scaled(factor: Tensor, scale: Tensor) -> Tensor | None:
    wide = factor.to(torch.float32)
    if scale.dtype != torch.float32:
        # scales of a byte (MX formats) lie in an order of their own
        return None
    if scale.numel() == 1:
        return wide * scale.reshape(())
    if scale.dim() != 2 or not all(isinstance(n, int) for n in (*factor.shape, *scale.shape)):
        return None
    (m, n), (rows, columns) = factor.shape, scale.shape
    if m % rows or n % columns:
        return None
    blocks = wide.reshape(rows, m // rows, columns, n // columns)
    return (blocks * scale[:, None, :, None]).reshape(m, n)


def grouped_mm(
    a: Tensor, b: Tensor, offs: Tensor | None = None, bias: Tensor | None = None, out_dtype: torch.dtype | None = None
) -> Tensor:
    """Products of groups: of matrices, or of the rows of ``a`` [T, K] that end at ``offs`` with their own ``b[g]``."""
    if bias is not None:
        return NotImplemented
    if offs is None:
        return torch.bmm(a, b)
    if a.dim() != 2 or b.dim() != 3 or not all(isinstance(n, int) for n in (*a.shape, *b.shape)):
        return NotImplemented
    rows, groups = a.shape[0], b.shape[0]
    at = torch.arange(rows, device=a.device)
    if rows < _ROWS:
        mine = (at[:, None] >= offs[None, :]).sum(1).clamp(max=groups - 1)
        return (a[:, None] @ b[mine])[:, 0]
    ends = offs.to(torch.int64)
    starts = _shifted(ends)
    # each group takes whole blocks of rows, so that a block has one matrix
    last = _sums((ends - starts + _BLOCK - 1) // _BLOCK)
    first = _shifted(last)
    block = torch.arange(rows // _BLOCK + groups, device=a.device)
    owner = (block[:, None] >= last[None, :]).sum(1).clamp(max=groups - 1)
    inside = torch.arange(_BLOCK, device=a.device)
    taken = (starts - first * _BLOCK)[owner][:, None] + block[:, None] * _BLOCK + inside[None, :]
    made = torch.bmm(a[taken.clamp(0, rows - 1)], b[owner])
    mine = (at[:, None] >= ends[None, :]).sum(1).clamp(max=groups - 1)
    place = (first * _BLOCK - starts)[mine] + at
    return made[place // _BLOCK, place % _BLOCK]


def _shifted(x: Tensor) -> Tensor:
    """Each element's neighbour before it, 0 for the first."""
    at = torch.arange(x.shape[0], device=x.device)
    return torch.where(at > 0, x[(at - 1).clamp(min=0)], 0)


def _sums(x: Tensor) -> Tensor:
    """Running sums of a few numbers, each a sum of all numbers up to it: no launch of their own."""
    at = torch.arange(x.shape[0], device=x.device)
    return torch.where(at[None, :] <= at[:, None], x[None, :], 0).sum(1)


#: operation of ATen -> what is traced in its place
SCALED: dict[str, Callable[..., Any]] = {"_scaled_mm.default": scaled_mm, "_grouped_mm.default": grouped_mm}
