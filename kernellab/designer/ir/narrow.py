"""Factors of a product as tensor cores take them: narrow floats, and what scales them apart from these.

A cast from a narrow float to a wider one is exact, and so is the product of two such numbers in float32: tensor cores
give it for the narrow numbers themselves. What a factor is multiplied or divided by in float32, and that does not vary
along the sum, is a factor of the sum (equal to within one rounding of float32).
"""

from __future__ import annotations

from dataclasses import dataclass

from kernellab.designer.ir.dtypes import FLOAT8
from kernellab.designer.ir.expr import Axis, Expr, Free, Leaf, Op

#: floats whose numbers are all numbers of the wider ones
_WIDER = {
    **dict.fromkeys(FLOAT8, frozenset(["float16", "bfloat16", "float32"])),
    "float16": frozenset(["float32"]),
    "bfloat16": frozenset(["float32"]),
}

#: what a sum is multiplied ("mul") or divided ("div") by
Scales = list[tuple[str, Expr]]
#: summed elements that one scale of a block may stand for
_BLOCKS = (32, 64, 128)


@dataclass
class Narrow:
    """Two factors that tensor cores take, the scales of their sums, and those of each block along the sum."""

    left: Expr
    right: Expr
    scales: Scales
    steps: tuple[Expr, ...]


def narrow_factors(a: Expr, b: Expr, over: Axis) -> Narrow | None:
    """Both factors as narrow floats that tensor cores multiply; None where they are not such."""
    steps: list[Expr] = []
    (left, first), (right, second) = (_bare(e, over.leaves(), steps) for e in (a, b))
    eight = {left.dtype, right.dtype} <= FLOAT8
    alike = eight or left.dtype == right.dtype in _WIDER
    plain = isinstance(left, Leaf) and isinstance(right, Leaf)
    if not (alike and plain) or (left is a and right is b) or (steps and not eight):
        return None
    return Narrow(left, right, [*first, *second], tuple(steps))


def _bare(value: Expr, leaves: tuple[Axis, ...], steps: list[Expr]) -> tuple[Expr, Scales]:
    scales: Scales = []
    summed, free = frozenset(leaves), Free()
    blocks = len(leaves) > 1 and leaves[-1].extent in _BLOCKS
    while isinstance(value, Op):
        if value.op == "cast" and value.dtype in _WIDER.get(value.args[0].dtype, ()):
            value = value.args[0]
        elif value.op in ("mul", "div") and value.dtype == "float32":
            along = [free(arg) & summed for arg in value.args]
            same = [not axes for axes in along]
            block = next((n for n, axes in enumerate(along) if axes and leaves[-1] not in axes), None)
            if value.op == "mul" and blocks and block is not None and not any(same):
                steps.append(value.args[block])
                value = value.args[1 - block]
            elif same[1] and not same[0]:
                scales.append((value.op, value.args[1]))
                value = value.args[0]
            elif same[0] and not same[1] and value.op == "mul":
                scales.append(("mul", value.args[0]))
                value = value.args[1]
            else:
                break
        else:
            break
    return value, scales


def scaled(product: Expr, scales: Scales, line: int) -> Expr:
    """``product`` with its factors' scales."""
    for op, scale in scales:
        product = Op(op, (product, scale), "float32", line)
    return product
