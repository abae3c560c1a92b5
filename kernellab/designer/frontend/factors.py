"""Factors of a product as tensor cores take them: narrow floats, and what scales them apart from these.

A cast from a narrow float to a wider one is exact, and so is the product of two such numbers in float32: tensor cores
give it for the narrow numbers themselves. What a factor is multiplied or divided by in float32, and that does not vary
along the sum, is a factor of the sum (equal to within one rounding of float32).
"""

from __future__ import annotations

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


def narrow_factors(a: Expr, b: Expr, over: Axis) -> tuple[Expr, Expr, Scales] | None:
    """Both factors as narrow floats that tensor cores multiply, and their scales; None where they are not such."""
    summed = frozenset(over.leaves())
    (left, first), (right, second) = _bare(a, summed), _bare(b, summed)
    alike = left.dtype == right.dtype in _WIDER or {left.dtype, right.dtype} <= FLOAT8
    plain = isinstance(left, Leaf) and isinstance(right, Leaf)
    if not (alike and plain) or (left is a and right is b):
        return None
    return left, right, [*first, *second]


def _bare(value: Expr, summed: frozenset[Axis]) -> tuple[Expr, Scales]:
    scales: Scales = []
    while isinstance(value, Op):
        if value.op == "cast" and value.dtype in _WIDER.get(value.args[0].dtype, ()):
            value = value.args[0]
        elif value.op in ("mul", "div") and value.dtype == "float32":
            same = [not Free()(arg) & summed for arg in value.args]
            if same[1] and not same[0]:
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
