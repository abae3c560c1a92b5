"""Inverses, determinants, solutions and factors of small matrices, element by element over a batch.

For larger ones the function without an error check is called: its result can remain a single library call.
"""

# mypy: disable-error-code="no-any-return"
# NotImplemented is how a function leaves an operation whole
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

#: largest number of rows for which cofactors are written out; and for a factor, whose terms grow with the cube of the
#: rows
_COFACTORS, _FACTOR = 3, 6

Rows = Sequence[Sequence[Tensor]]


def _rows(x: Tensor, most: int) -> list[list[Tensor]] | None:
    """Return the elements [...] of square matrices [..., n, n]; None if these are large or not floating-point."""
    n = x.shape[-1] if x.dim() > 1 else 0
    if not isinstance(n, int) or not 0 < n <= most or x.shape[-2] != n or not x.dtype.is_floating_point:
        return None
    return [[x[..., i, j] for j in range(n)] for i in range(n)]


def _matrix(rows: Rows) -> Tensor:
    return torch.stack([torch.stack(list(row), -1) for row in rows], -2)


def _minor(m: Rows, row: int, column: int) -> Tensor:
    """Return the determinant without a row and a column, with its sign."""
    minor = [[e for j, e in enumerate(r) if j != column] for i, r in enumerate(m) if i != row]
    value = _determinant(minor) if minor else torch.ones_like(m[0][0])
    return -value if (row + column) % 2 else value


def _determinant(m: Rows) -> Tensor:
    if len(m) == 1:
        return m[0][0]
    if len(m) == 2:
        return m[0][0] * m[1][1] - m[0][1] * m[1][0]
    total = m[0][0] * _minor(m, 0, 0)
    for j in range(1, len(m)):
        total = total + m[0][j] * _minor(m, 0, j)
    return total


def inverse(x: Tensor) -> Tensor:
    """Return the inverses of [..., n, n]: the cofactors over the determinant."""
    m = _rows(x, _COFACTORS)
    if m is None:
        return torch.linalg.inv_ex(x)[0]
    whole = 1 / _determinant(m)
    return _matrix([[_minor(m, j, i) * whole for j in range(len(m))] for i in range(len(m))])


def determinant(x: Tensor) -> Tensor:
    """Return the determinants [...] of [..., n, n]."""
    m = _rows(x, _COFACTORS)
    return NotImplemented if m is None else _determinant(m)


def solve(x: Tensor, y: Tensor, *, left: bool = True) -> Tensor:
    """Return z with x z = y, where y has columns, or is one column for each matrix."""
    is_column = y.dim() == 1 or (y.dim() == x.dim() - 1 and y.shape == x.shape[:-1])
    if not left:
        return NotImplemented
    if _rows(x, _COFACTORS) is None:
        return torch.linalg.solve_ex(x, y)[0]
    inverses = inverse(x)
    return (inverses @ y.unsqueeze(-1)).squeeze(-1) if is_column else inverses @ y


def cholesky(x: Tensor, *, upper: bool = False) -> Tensor:
    """The factor of symmetric matrices, of which one triangle is read; NaN where one has none."""
    m = _rows(x.mT if upper else x, _FACTOR)
    if m is None:
        return torch.linalg.cholesky_ex(x, upper=upper)[0]
    zero, factor = torch.zeros_like(m[0][0]), list[list[Tensor]]()
    for i, row in enumerate(m):
        factor_row = list[Tensor]()
        for j in range(i + 1):
            rest = row[j]
            for k in range(j):
                rest = rest - factor_row[k] * (factor_row[k] if i == j else factor[j][k])
            factor_row.append(torch.sqrt(rest) if i == j else rest / factor[j][j])
        factor.append(factor_row)
    lower = _matrix([[*factor_row, *[zero] * (len(m) - len(factor_row))] for factor_row in factor])
    return lower.transpose(-1, -2) if upper else lower


class _Logarithm(NamedTuple):
    sign: Tensor
    logabsdet: Tensor


def log_determinant(x: Tensor) -> Any:
    """The sign of the determinant and the logarithm of its size."""
    m = _rows(x, _COFACTORS)
    if m is None:
        return NotImplemented
    whole = _determinant(m)
    return _Logarithm(torch.sign(whole), torch.log(whole.abs()))


def logdet(x: Tensor) -> Tensor:
    """The logarithm of the determinant; NaN where that is negative."""
    m = _rows(x, _COFACTORS)
    return NotImplemented if m is None else torch.log(_determinant(m))


def solve_triangular(x: Tensor, y: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False) -> Tensor:
    """z of x z = y for one triangle of ``x``, row by row; ``y`` has columns."""
    m = _rows(x, _FACTOR)
    if m is None or not left or y.dim() < 2:
        return NotImplemented
    y = y.expand(*torch.broadcast_shapes(x.shape[:-2], y.shape[:-2]), *y.shape[-2:])  # type: ignore[no-untyped-call]
    rows: dict[int, Tensor] = {}
    for i in reversed(range(len(m))) if upper else range(len(m)):
        rest = y[..., i, :]
        for j, row in rows.items():
            rest = rest - m[i][j].unsqueeze(-1) * row
        rows[i] = rest if unitriangular else rest / m[i][i].unsqueeze(-1)
    return torch.stack([rows[i] for i in range(len(m))], -2)


#: function of torch, by name -> what is called in its place
SMALL_MATRICES: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(("linalg_inv", "inverse", "inv"), inverse), **dict.fromkeys(("linalg_det", "det"), determinant),
    "linalg_solve": solve, "linalg_cholesky": cholesky, "logdet": logdet, "linalg_solve_triangular": solve_triangular,
    **dict.fromkeys(("linalg_slogdet", "slogdet"), log_determinant),
}  # fmt: skip
