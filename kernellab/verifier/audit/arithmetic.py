"""The arithmetic of one operator apart from products, in FLOPs as the sketch's operations are counted.

What an operator must do at least, whatever kernel does it: what its row of the table of operations says
(``kernellab.operations.aten``), so that the audit and a sketch's cost agree. An operator without a row counts one FLOP
for each element that comes out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kernellab.operations.aten import Per, Role, aten_op, power
from kernellab.operations.sketch import OPS

#: n^3 / 3 for each matrix
_CHOLESKY = ("cholesky", "linalg_cholesky", "linalg_cholesky_ex")
#: operators whose arithmetic depends on the method, or on values
_METHODS = frozenset(
    (
        Role.ORDER, Role.LINALG, Role.SPECTRUM, Role.RECURRENT, Role.ALGORITHM, Role.DYNAMIC, Role.RESAMPLE,
        Role.GATHER, Role.SCATTER,
    )
)  # fmt: skip
#: reductions of one tensor that are elementwise of two
_OF_TWO = ("max", "min")


def is_guess(name: str) -> bool:
    """Is what :func:`flops_beside_products` counts of an operator no figure to compare a kernel's arithmetic with?"""
    row = aten_op(name)
    return row is None or (row.role in _METHODS and row.name not in _CHOLESKY)


def flops_beside_products(name: str, args: Sequence[Any], given: Sequence[Any], made: Sequence[Any]) -> float:
    """FLOPs of the operator ``name`` on the tensors ``given``, which makes the tensors ``made``.

    An operator whose functional and in-place forms differ by a final underscore counts alike.
    """
    row = aten_op(name)
    taken = max((t.numel() for t in given), default=0)
    out = max((t.numel() for t in made), default=0)
    if row is None:
        return float(out)
    if row.name in _CHOLESKY:
        return float(out * made[0].shape[-1]) / 3
    if row.name == "pow":
        return sum(OPS[op].flops for op in power(args[1] if len(args) > 1 else None)) * out
    if row.role is Role.REDUCE and row.name in _OF_TWO and len(given) > 1:
        return row.flops * out
    return row.flops * (taken if row.per is Per.OPERAND else out)
