"""Resolves expressions to operands: index arithmetic, literals, tiles, and pointwise operators with their types."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from kernellab.operations.sketch import BY_SYMBOL, OPS
from kernellab.sketch.program import affine
from kernellab.sketch.program.ints import IntExpr, IntKind, int_op, num
from kernellab.sketch.program.program import Apply, Const, DType, Param, Read, Type, Value
from kernellab.sketch.resolve.operands import (
    Operand,
    Weak,
    broadcast,
    cast,
    common_of,
    default_dtype,
    is_condition,
    is_float,
    shape_of,
    show,
    strong_dtype,
    typed,
)
from kernellab.sketch.resolve.scope import LetEntry, LoopEntry, PoisonEntry, Reading, Refused, Rule, Scope, TileEntry
from kernellab.sketch.syntax import tree, walk

_INDEX_OPS = frozenset(("+", "-", "*", "//", "%", "&", "|", "^", "<<", ">>"))
_COMPARE = frozenset(("<", "<=", ">", ">=", "==", "!="))
_LOGIC = frozenset(("and", "or"))
#: bit operations on truth values (index conditions and bool tiles) are logical ones
_BITS_OF_CONDITIONS = {"&": "and", "|": "or", "^": "!=", "~": "not"}
_BITS_OF_BOOLS = {"bit_and": "logical_and", "bit_or": "logical_or", "bit_xor": "ne", "bit_not": "logical_not"}


def known_operand(scope: Scope, expr: tree.Expr) -> Operand:
    """Return :func:`read_operand`, or its earlier result for an equal expression whose names have the same meaning."""
    reading = scope.readings.get(expr)
    if reading is not None and all(_means(scope, name) == use for name, use in reading.uses):
        return reading.operand
    scope.uses = []
    before = (len(scope.faults), len(scope.opaque))
    operand = read_operand(scope, expr)
    if before == (len(scope.faults), len(scope.opaque)) and not scope.pending:
        scope.readings.keep(expr, Reading(tuple(scope.uses), operand))
    return operand


def _means(scope: Scope, name: str) -> object:
    """Return the current meaning of ``name``; None if an earlier result must not be reused."""
    entry = scope.find(name)
    if isinstance(entry, TileEntry):
        return entry.tile if entry.written else None
    if isinstance(entry, (LetEntry, LoopEntry)):
        return entry.expr
    if entry is not None:
        return None
    names = scope.names
    if name in names.constexprs:
        return names.constexprs[name]
    return names.symbols.get(name)


# -- what statements need


def read_value(scope: Scope, expr: tree.Expr, dtype: DType | None = None) -> Value:
    """Return ``expr`` as a value of ``dtype``, or of its default dtype."""
    operand = read_operand(scope, expr)
    return typed(operand, default_dtype(operand) if dtype is None else dtype)


#: the remedy for a bound that depends on the inputs' values
_LOADED = (
    "An index or bound cannot be a value that was loaded or computed: run over the whole extent and mask with "
    "where(...) what lies outside, or read single positions with gather(X[ids] -> tile)."
)


def read_index(scope: Scope, expr: tree.Expr) -> IntExpr:
    """Return ``expr`` as an index expression."""
    if isinstance(expr, tree.Num) and isinstance(expr.value, int):
        return num(expr.value)
    operand = read_operand(scope, expr)
    if isinstance(operand, IntExpr) and not is_condition(operand):
        return operand
    from kernellab.sketch.syntax.printer import format_expr

    loaded = any(isinstance(scope.find(name), TileEntry) for name in walk.names((expr,)))
    remedy = _LOADED if loaded else "Use loop variables, symbols, constexprs and integers."
    raise scope.refuse("not-index", expr.span, what=f"'{format_expr(expr)}'", remedy=remedy)


def read_condition(scope: Scope, expr: tree.Expr) -> IntExpr:
    """Return ``expr`` as a condition of ``if`` or ``require``."""
    if isinstance(expr, tree.Bool):
        return num(int(expr.value))
    if isinstance(expr, tree.Binary) and expr.op in _LOGIC:
        return int_op(expr.op, read_condition(scope, expr.left), read_condition(scope, expr.right))
    if isinstance(expr, tree.Unary) and expr.op == "not":
        return int_op("not", read_condition(scope, expr.operand))
    operand = read_operand(scope, expr)
    if isinstance(operand, IntExpr):
        return operand
    raise scope.refuse("not-index-condition", expr.span)


def read_shape(scope: Scope, expr: tree.Expr) -> tuple[IntExpr, ...]:
    """Return a list of extents; a single extent is a list of one. Extents must not contain loop variables."""
    items = expr.items if isinstance(expr, tree.List) else (expr,)
    shape = tuple(read_index(scope, i) for i in items)
    for extent, item in zip(shape, items, strict=True):
        check_fixed(scope, extent, item.span)
    return shape


def check_fixed(scope: Scope, extent: IntExpr, span: tree.Span) -> None:
    """Refuse an extent that changes with a loop."""
    varying = extent.loop_vars() and affine.simplify(extent).loop_vars()
    if varying:
        raise scope.refuse("extent-varies", span, extent=affine.simplify(extent), var=min(varying))


# -- expressions


def read_operand(scope: Scope, expr: tree.Expr) -> Operand:
    """Return ``expr`` as an index expression, a weak number or a value, by the scope's rule for its kind of node."""
    return scope.rules[type(expr)](scope, expr)


def _number(scope: Scope, expr: tree.Num) -> Operand:
    return literal(expr.value)


def _truth(scope: Scope, expr: tree.Bool) -> Operand:
    return Const(Type((), DType.BOOL), expr.value)


def _no_value(scope: Scope, expr: tree.Expr) -> Operand:
    what = "A list" if isinstance(expr, tree.List) else "A string"
    raise scope.refuse("arguments", expr.span, what=f"{what} is not a value.", remedy="Write a tile or a number.")


def _name(scope: Scope, expr: tree.Name) -> Operand:
    name = expr.id
    scope.uses.append((name, _means(scope, name)))
    entry = scope.find(name)
    if isinstance(entry, TileEntry):
        if not entry.written:
            entry.written = True
            scope.note("undefined-read", expr.span, name=name)
        return Read(Type(entry.tile.shape, entry.tile.dtype), entry.tile)
    if isinstance(entry, (LetEntry, LoopEntry)):
        return entry.expr
    if isinstance(entry, PoisonEntry):
        raise Refused
    names = scope.names
    if name in names.symbols:
        return names.symbols[name]
    if name in names.constexprs:
        if name in names.index_constexprs:
            return IntExpr(IntKind.CONSTEXPR, name=name)
        value = names.constexprs[name].value
        return Weak(not isinstance(value, int), lambda dtype: Param(Type((), dtype), name))
    if name in names.tensors:
        raise scope.refuse("tensor-as-value", expr.span, name=name)
    raise scope.unknown(name, expr.span)


def _unary(scope: Scope, expr: tree.Unary) -> Operand:
    if expr.op == "not":
        operand = read_operand(scope, expr.operand)
        if isinstance(operand, IntExpr):
            return int_op("not", operand)
        raise scope.refuse("tile-logic", expr.span, op="not")
    operand = read_operand(scope, expr.operand)
    if expr.op == "+":
        return operand
    if isinstance(operand, IntExpr):
        if expr.op == "~":
            return int_op("not" if is_condition(operand) else "~", operand)
        return int_op("-", num(0), operand)
    return pointwise(scope, "bit_not" if expr.op == "~" else "neg", [operand], expr.span)


def _binary(scope: Scope, expr: tree.Binary) -> Operand:
    op = expr.op
    left, right = scope.each((expr.left, expr.right), lambda side: read_operand(scope, side))
    if isinstance(left, IntExpr) and isinstance(right, IntExpr):
        if op in _BITS_OF_CONDITIONS and is_condition(left) and is_condition(right):
            return int_op(_BITS_OF_CONDITIONS[op], left, right)
        if op in _INDEX_OPS or op in _COMPARE or op in _LOGIC:
            if op in ("//", "%") and affine.constant(right) == 0:
                raise scope.refuse("arguments", expr.span, what="Division by zero.", remedy="Correct the divisor.")
            return int_op(op, left, right)
    elif op in _LOGIC:
        raise scope.refuse("tile-logic", expr.span, op=op)
    return pointwise(scope, BY_SYMBOL[op].name, [left, right], expr.span)


def _subscript(scope: Scope, expr: tree.Subscript) -> Operand:
    entry = scope.find(expr.name)
    if isinstance(entry, PoisonEntry):
        raise Refused
    if not isinstance(entry, TileEntry):
        if expr.name in scope.names.tensors:
            raise scope.refuse("tensor-as-value", expr.span, name=expr.name)
        raise scope.unknown(expr.name, expr.span)
    axes = _new_axes(scope, expr, entry.tile.rank, expr.name)
    value = _name(scope, tree.Name(expr.name, expr.span))
    assert isinstance(value, Read)
    return newaxis(value, axes)


def _indexed(scope: Scope, expr: tree.Indexed) -> Operand:
    value = read_operand(scope, expr.value)
    axes = _new_axes(scope, expr, len(shape_of(value)), "(...)")
    if isinstance(value, IntExpr):
        raise scope.refuse("tile-index", expr.span, name="(...)")
    if isinstance(value, Weak):
        build = value.build
        return Weak(value.is_float, lambda dtype: newaxis(build(dtype), axes), _stretched(value.shape, axes))
    return newaxis(value, axes)


def _new_axes(scope: Scope, expr: tree.Subscript | tree.Indexed, rank: int, name: str) -> tuple[int, ...]:
    """Return where an index adds dimensions. Raises Refused: it does anything else, or has more dimensions than
    ``rank``."""
    whole = [i for i in expr.items if isinstance(i, tree.Slice) and not (i.start or i.stop or i.step)]
    axes = tuple(k for k, i in enumerate(expr.items) if isinstance(i, tree.NewAxis))
    if len(whole) + len(axes) != len(expr.items) or len(whole) > rank:
        raise scope.refuse("tile-index", expr.span, name=name)
    return axes


# -- pointwise operations


def pointwise(scope: Scope, name: str, operands: Sequence[Operand], span: tree.Span) -> Operand:
    """Return ``name`` over ``operands``: broadcast and promoted; weak if all operands are."""
    op = OPS[name]
    shape: tuple[IntExpr, ...] = ()
    for operand in operands:
        both = broadcast(shape, shape_of(operand))
        if both is None:
            shapes = " and ".join(show(shape_of(o)) for o in operands if shape_of(o))
            raise scope.refuse(
                "shape-mismatch", span, what=f"'{op.symbol or name}' cannot combine shapes {shapes}.",
                remedy="Align them at the right; add dimensions with x[:, None] or x[None, :].",
            )  # fmt: skip
        shape = both
    if name == "where":
        return _where(scope, operands, shape)
    if op.result == "integer" and any(is_float(o) for o in operands):
        raise scope.refuse(
            "arguments", span, what=f"'{op.symbol or name}' works on the bits of integers, and this is a float.",
            remedy="Write cast(x, i32), or bitcast(x, i32) for the bits of the float.",
        )  # fmt: skip
    if name in _BITS_OF_BOOLS and all(strong_dtype(o) is DType.BOOL for o in operands):
        return pointwise(scope, _BITS_OF_BOOLS[name], operands, span)
    weak = all(strong_dtype(o) is None for o in operands)
    if op.result == "bool":
        inner = DType.BOOL if name.startswith("logical") else common_of(operands)
        return Apply(Type(shape, DType.BOOL), name, tuple(typed(o, inner) for o in operands))
    arguments = tuple(operands)
    if weak:
        floats = op.result == "float" or any(is_float(o) for o in operands)
        return Weak(floats, lambda dtype: _weak(name, arguments, dtype, op.result, shape), shape)
    dtype = common_of(operands)
    if op.result == "float" and not dtype.is_float:
        dtype = DType.F32
    if dtype is DType.BOOL and name not in ("min", "max"):
        dtype = DType.I64
    return Apply(Type(shape, dtype), name, tuple(typed(o, dtype) for o in operands))


def _where(scope: Scope, operands: Sequence[Operand], shape: tuple[IntExpr, ...]) -> Operand:
    cond = typed(operands[0], DType.BOOL)
    branches = tuple(operands[1:])

    def build(dtype: DType) -> Value:
        return Apply(Type(shape, dtype), "where", (cond, *(typed(b, dtype) for b in branches)))

    if all(strong_dtype(b) is None for b in branches):
        return Weak(any(is_float(b) for b in branches), build, shape)
    return build(common_of(branches))


def newaxis(value: Value, axes: tuple[int, ...]) -> Value:
    """Return ``value`` with new dimensions of 1 at positions ``axes`` of the result."""
    if not axes:
        return value
    shape = _stretched(value.type.shape, axes)
    return Apply(Type(shape, value.type.dtype), "newaxis", (value,), (("axes", axes),))


def _stretched(shape: tuple[IntExpr, ...], axes: tuple[int, ...]) -> tuple[IntExpr, ...]:
    stretched = list(shape)
    for axis in axes:
        stretched.insert(axis, num(1))
    return tuple(stretched)


def literal(value: int | float) -> Operand:
    if isinstance(value, int):
        return num(value)

    def build(dtype: DType) -> Value:
        if dtype.is_float:
            return Const(Type((), dtype), float(value))
        if math.isfinite(value):
            return Const(Type((), dtype), bool(value) if dtype is DType.BOOL else int(value))
        return Const(Type((), dtype), integer_limit(dtype, value > 0))

    return Weak(True, build)


def integer_limit(dtype: DType, high: bool) -> int | bool:
    """Return ``inf`` or ``-inf`` as an integer: the largest or the smallest one."""
    if dtype is DType.BOOL:
        return high
    if dtype is DType.U8:
        return 255 if high else 0
    limit = 1 << (8 * dtype.bytes - 1)
    return limit - 1 if high else -limit


def _weak(name: str, operands: Sequence[Operand], dtype: DType, rule: str, shape: tuple[IntExpr, ...]) -> Value:
    """Return an operation on weak numbers in the dtype of their context."""
    inner = dtype.compute
    if inner.is_float and rule == "integer":
        inner = DType.I64
    if not inner.is_float and (rule == "float" or any(is_float(o) for o in operands)):
        inner = DType.F32
    result = Apply(Type(shape, inner), name, tuple(typed(o, inner) for o in operands))
    return cast(result, dtype)


#: the rule for each kind of expression except calls, which use this table
EXPRESSIONS: Mapping[type, Rule] = {
    tree.Name: _name, tree.Num: _number, tree.Binary: _binary, tree.Subscript: _subscript, tree.Unary: _unary,
    tree.Indexed: _indexed, tree.Bool: _truth, tree.List: _no_value, tree.Str: _no_value,
}  # fmt: skip
