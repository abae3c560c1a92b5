"""Results of expressions before their context determines a dtype, and the rules for it.

An operand is an index scalar (IntExpr), a weak number (a literal, a numeric constexpr, or arithmetic on these alone),
or a typed value. Weak operands take the dtype of the other operands; alone they are f32 (or i64 for integers)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Union

from kernellab.sketch.program import affine
from kernellab.sketch.program.ints import IntExpr, IntKind
from kernellab.sketch.program.program import Apply, Const, DType, Index, Type, Value

_INT_RANK = {DType.BOOL: 0, DType.U8: 1, DType.I8: 1, DType.I16: 2, DType.I32: 3, DType.I64: 4}
_CONDITIONS = frozenset(("<", "<=", ">", ">=", "==", "!=", "and", "or", "not"))


@dataclass(frozen=True)
class Weak:
    """A number whose dtype comes from its context; ``build`` returns the value in that dtype."""

    is_float: bool
    build: Callable[[DType], Value]
    shape: tuple[IntExpr, ...] = ()


Operand = Union[IntExpr, Weak, Value]


def is_condition(expr: IntExpr) -> bool:
    """Is ``expr`` a truth value rather than a number?"""
    return expr.kind is IntKind.OP and expr.op in _CONDITIONS


def shape_of(operand: Operand) -> tuple[IntExpr, ...]:
    if isinstance(operand, IntExpr):
        return ()
    return operand.shape if isinstance(operand, Weak) else operand.type.shape


def strong_dtype(operand: Operand) -> DType | None:
    """Return the dtype of a typed value or a condition; None for a weak one."""
    if isinstance(operand, IntExpr):
        return DType.BOOL if is_condition(operand) else None
    return None if isinstance(operand, Weak) else operand.type.dtype


def is_float(operand: Operand) -> bool:
    if isinstance(operand, IntExpr):
        return False
    return operand.is_float if isinstance(operand, Weak) else operand.type.dtype.is_float


def promote(a: DType, b: DType) -> DType:
    """Return the dtype of arithmetic on ``a`` and ``b``."""
    if a.is_float or b.is_float:
        return DType.F64 if DType.F64 in (a, b) else DType.F32
    if a is b:
        return a
    if {a, b} == {DType.U8, DType.I8}:
        return DType.I16
    return a if _INT_RANK[a] >= _INT_RANK[b] else b


def common(dtypes: Sequence[DType | None], any_float: bool, any_int: bool = False) -> DType:
    """Return the compute dtype of operands; None is a weak one, and the flags are the kinds of weak ones."""
    strong = [d for d in dtypes if d is not None]
    if not strong:
        return DType.F32 if any_float else DType.I64
    result = strong[0].compute
    for dtype in strong[1:]:
        result = promote(result, dtype)
    if any_float and not result.is_float:
        return DType.F32
    return DType.I64 if any_int and result is DType.BOOL else result


def common_of(operands: Sequence[Operand]) -> DType:
    weak = [o for o in operands if strong_dtype(o) is None]
    return common(
        [strong_dtype(o) for o in operands], any(is_float(o) for o in weak), any(not is_float(o) for o in weak)
    )


def accumulator(dtype: DType) -> DType:
    """Return the dtype of sums of ``dtype``."""
    return dtype.compute if dtype.is_float else DType.I64


def gemm_accumulator(a: DType, b: DType) -> DType:
    if a.is_float or b.is_float:
        return promote(a, b).compute
    return DType.I32 if a.bytes == 1 and b.bytes == 1 else DType.I64


def default_dtype(operand: Operand) -> DType:
    """Return the dtype of an operand without a context."""
    strong = strong_dtype(operand)
    if strong is not None:
        return strong
    return DType.F32 if is_float(operand) else DType.I64


def typed(operand: Operand, dtype: DType) -> Value:
    """Return ``operand`` as a value of ``dtype``, with a cast if that changes a typed value."""
    if isinstance(operand, IntExpr):
        if operand.kind is IntKind.NUM:
            value: int | float | bool = operand.value
            if dtype.is_float:
                value = float(value)
            elif dtype is DType.BOOL:
                value = bool(value)
            return Const(Type((), dtype), value)
        return Index(Type((), dtype), operand)
    if isinstance(operand, Weak):
        return operand.build(dtype)
    return cast(operand, dtype)


def cast(value: Value, dtype: DType) -> Value:
    if value.type.dtype is dtype:
        return value
    return Apply(Type(value.type.shape, dtype), "cast", (value,))


def broadcast(a: tuple[IntExpr, ...], b: tuple[IntExpr, ...]) -> tuple[IntExpr, ...] | None:
    """Return NumPy's broadcast shape; a literal 1 stretches. None if the shapes do not match."""
    if a is b or a == b:
        return a
    result: list[IntExpr] = []
    for i in range(1, max(len(a), len(b)) + 1):
        left = a[-i] if i <= len(a) else None
        right = b[-i] if i <= len(b) else None
        if left is None or right is None:
            result.append(right if left is None else left)  # type: ignore[arg-type]
        elif left.is_one:
            result.append(right)
        elif right.is_one or affine.equal(left, right):
            result.append(left)
        else:
            return None
    return tuple(reversed(result))


def fits(shape: tuple[IntExpr, ...], into: tuple[IntExpr, ...]) -> bool:
    """Does a value of ``shape`` broadcast to exactly ``into``?"""
    both = broadcast(shape, into)
    return both is not None and same_shape(both, into)


def same_shape(a: tuple[IntExpr, ...], b: tuple[IntExpr, ...]) -> bool:
    return a == b or (len(a) == len(b) and all(affine.equal(x, y) for x, y in zip(a, b, strict=True)))


def show(shape: tuple[IntExpr, ...]) -> str:
    return f"[{', '.join(str(affine.simplify(d)) for d in shape)}]"
