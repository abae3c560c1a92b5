"""Products with scales, in groups, summed over a batch, or of three tensors."""

# mypy: disable-error-code="no-any-return"
# NotImplemented is how a function leaves an operation whole
from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

#: number of rows from which a product of groups stays whole; chosen, not measured
_MOST_GROUPED_ROWS = 256


def addbmm(x: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """Return the sum of a batch of products, added to ``x``."""
    total = (a @ b).sum(0)
    total = total if alpha == 1 else total * alpha
    return total if beta == 0 else total + (x if beta == 1 else x * beta)


def trilinear(
    x: Tensor, y: Tensor, z: Tensor, at_x: Sequence[int], at_y: Sequence[int], at_z: Sequence[int],
    summed: Sequence[int], unrolled: int = 1,
) -> Tensor:  # fmt: skip
    """Return a sum of products of three tensors that are aligned by dimensions of extent 1."""
    for at in sorted(at_x):
        x = x.unsqueeze(at)
    for at in sorted(at_y):
        y = y.unsqueeze(at)
    for at in sorted(at_z):
        z = z.unsqueeze(at)
    return (x * y * z).sum(list(summed))


def scaled_mm(
    a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor, bias: Tensor | None = None,
    scale_result: Tensor | None = None, out_dtype: torch.dtype | None = None, use_fast_accum: bool = False,
) -> Tensor:  # fmt: skip
    """Multiply ``a`` [M, K] by ``b`` [K, N], each times its scale: a single one, one per row or column, or one per
    block."""
    left, right = _scaled(a, scale_a), _scaled(b, scale_b)
    if left is None or right is None or scale_result is not None:
        return NotImplemented
    product = left @ right
    return (product if bias is None else product + bias).to(out_dtype or a.dtype)


def _scaled(factor: Tensor, scale: Tensor) -> Tensor | None:
    wide = factor.to(torch.float32)
    if scale.dtype != torch.float32:
        # one-byte scales (MX formats) are stored in another order
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
    """Multiply groups: matrices, or the rows of ``a`` [T, K] that end at ``offs`` by their own ``b[g]``."""
    if bias is not None or out_dtype not in (None, a.dtype):
        return NotImplemented
    if offs is None:
        return torch.bmm(a, b)
    if a.dim() != 2 or b.dim() != 3 or not all(isinstance(n, int) for n in (*a.shape, *b.shape)):
        return NotImplemented
    rows, groups = a.shape[0], b.shape[0]
    if rows >= _MOST_GROUPED_ROWS:
        return NotImplemented
    at = torch.arange(rows, device=a.device)
    group_of_row = (at[:, None] >= offs[None, :]).sum(1).clamp(max=groups - 1)
    return (a[:, None] @ b[group_of_row])[:, 0]


def rows_of_groups(a: Tensor, b: Tensor, offs: Tensor, *_: Any, **__: Any) -> Tensor:
    """Compute grouped products for any number of rows and in any dtype."""
    firsts = [0, *offs.tolist()]
    group_products = [a[first:end] @ b[group] for group, (first, end) in enumerate(itertools.pairwise(firsts))]
    return torch.cat([*group_products, a[firsts[-1] :] @ b[-1]])


#: operation of ATen -> function that is traced instead
PRODUCTS: dict[str, Callable[..., Any]] = {
    "addbmm.default": addbmm, "_trilinear.default": trilinear, "_scaled_mm.default": scaled_mm,
    "_grouped_mm.default": grouped_mm,
}  # fmt: skip
