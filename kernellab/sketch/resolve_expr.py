"""Expressions of the tree to operands: index arithmetic, literals, tiles, and pointwise operators with their types."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from kernellab.sketch import affine, tree
from kernellab.sketch.ints import IntExpr, IntKind, int_op, num
from kernellab.sketch.operands import (
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
from kernellab.sketch.ops import BY_SYMBOL, OPS
from kernellab.sketch.program import Apply, Const, DType, Param, Read, Type, Value
from kernellab.sketch.scope import LetEntry, LoopEntry, PoisonEntry, Refused, Scope, TileEntry

_INDEX_OPS = frozenset(("+", "-", "*", "//", "%"))
_COMPARE = frozenset(("<", "<=", ">", ">=", "==", "!="))
_LOGIC = frozenset(("and", "or"))
_FLOAT_ONLY = frozenset(("/", "**"))


#: what a name stood for when an expression was read: a tile, an index expression, a constexpr
_Use = tuple[str, object]
#: operands by id of their expression, which is kept so that the id stays its own; unchanged lines keep their nodes
_memo: dict[int, tuple[tree.Expr, tuple[_Use, ...], Operand]] = {}
_MEMO_SIZE = 8192


class ExpressionReader:
    """Reads expressions in ``scope``; a wrong one notes its diagnostic and raises Refused."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self._uses: list[_Use] = []

    def known_operand(self, expr: tree.Expr) -> Operand:
        """:meth:`operand`, taken from the last reading of this very node when its names still mean the same."""
        found = _memo.get(id(expr))
        if found is not None and all(self._means(name) == use for name, use in found[1]):
            return found[2]
        scope = self.scope
        self._uses = []
        before = (len(scope.faults), len(scope.opaque))
        operand = self.operand(expr)
        if before == (len(scope.faults), len(scope.opaque)) and not scope.pending:
            if len(_memo) > _MEMO_SIZE:
                _memo.clear()
            _memo[id(expr)] = (expr, tuple(self._uses), operand)
        return operand

    def _means(self, name: str) -> object:
        """What ``name`` stands for now; None for what cannot be taken from an earlier reading."""
        entry = self.scope.find(name)
        if isinstance(entry, TileEntry):
            return entry.tile if entry.written else None
        if isinstance(entry, (LetEntry, LoopEntry)):
            return entry.expr
        if entry is not None:
            return None
        names = self.scope.names
        if name in names.constexprs:
            return names.constexprs[name]
        return names.symbols.get(name)

    # -- what a statement asks for

    def value(self, expr: tree.Expr, dtype: DType | None = None) -> Value:
        """``expr`` as a value: of ``dtype``, or of its own."""
        operand = self.operand(expr)
        return typed(operand, default_dtype(operand) if dtype is None else dtype)

    def index(self, expr: tree.Expr) -> IntExpr:
        """``expr`` as an index expression."""
        if isinstance(expr, tree.Num) and isinstance(expr.value, int):
            return num(expr.value)
        operand = self.operand(expr)
        if isinstance(operand, IntExpr) and not is_condition(operand):
            return operand
        from kernellab.sketch.printer import format_expr

        raise self.scope.refuse("not-index", expr.span, what=f"'{format_expr(expr)}'")

    def condition(self, expr: tree.Expr) -> IntExpr:
        """``expr`` as a condition of ``if`` or ``require``."""
        if isinstance(expr, tree.Bool):
            return num(int(expr.value))
        if isinstance(expr, tree.Binary) and expr.op in _LOGIC:
            return int_op(expr.op, self.condition(expr.left), self.condition(expr.right))
        if isinstance(expr, tree.Unary) and expr.op == "not":
            return int_op("not", self.condition(expr.operand))
        operand = self.operand(expr)
        if isinstance(operand, IntExpr):
            return operand
        raise self.scope.refuse("not-index-condition", expr.span)

    def shape(self, expr: tree.Expr) -> tuple[IntExpr, ...]:
        """A list of extents; a single extent stands for a list of one. Extents are free of loop variables."""
        items = expr.items if isinstance(expr, tree.List) else (expr,)
        shape = tuple(self.index(i) for i in items)
        for extent, item in zip(shape, items, strict=True):
            self.fixed(extent, item.span)
        return shape

    def fixed(self, extent: IntExpr, span: tree.Span) -> None:
        """Refuses an extent that changes with a loop."""
        varying = extent.loop_vars() and affine.simplify(extent).loop_vars()
        if varying:
            raise self.scope.refuse("extent-varies", span, extent=affine.simplify(extent), var=min(varying))

    # -- expressions

    def operand(self, expr: tree.Expr) -> Operand:
        if isinstance(expr, tree.Name):
            return self._name(expr)
        if isinstance(expr, tree.Num):
            return _literal(expr.value)
        if isinstance(expr, tree.Binary):
            return self._binary(expr)
        if isinstance(expr, tree.Call):
            return self.call(expr)
        if isinstance(expr, tree.Subscript):
            return self._subscript(expr)
        if isinstance(expr, tree.Unary):
            return self._unary(expr)
        if isinstance(expr, tree.Bool):
            return Const(Type((), DType.BOOL), expr.value)
        what = "A list" if isinstance(expr, tree.List) else "A string"
        raise self.scope.refuse(
            "arguments", expr.span, what=f"{what} is not a value.", remedy="Write a tile or a number."
        )

    def call(self, expr: tree.Call) -> Operand:
        """Overridden by the reader of calls."""
        raise NotImplementedError

    def _name(self, expr: tree.Name) -> Operand:
        scope, name = self.scope, expr.id
        self._uses.append((name, self._means(name)))
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

    def _unary(self, expr: tree.Unary) -> Operand:
        if expr.op == "not":
            operand = self.operand(expr.operand)
            if isinstance(operand, IntExpr):
                return int_op("not", operand)
            raise self.scope.refuse("tile-logic", expr.span, op="not")
        operand = self.operand(expr.operand)
        if expr.op == "+":
            return operand
        if isinstance(operand, IntExpr):
            return int_op("-", num(0), operand)
        return self.pointwise("neg", [operand], expr.span)

    def _binary(self, expr: tree.Binary) -> Operand:
        op = expr.op
        left, right = self.operand(expr.left), self.operand(expr.right)
        if isinstance(left, IntExpr) and isinstance(right, IntExpr):
            if op in _INDEX_OPS or op in _COMPARE or op in _LOGIC:
                if op in ("//", "%") and affine.constant(right) == 0:
                    raise self.scope.refuse(
                        "arguments", expr.span, what="Division by zero.", remedy="Correct the divisor."
                    )
                return int_op(op, left, right)
        elif op in _LOGIC:
            raise self.scope.refuse("tile-logic", expr.span, op=op)
        return self.pointwise(BY_SYMBOL[op].name, [left, right], expr.span)

    def _subscript(self, expr: tree.Subscript) -> Operand:
        entry = self.scope.find(expr.name)
        if isinstance(entry, PoisonEntry):
            raise Refused
        if not isinstance(entry, TileEntry):
            if expr.name in self.scope.names.tensors:
                raise self.scope.refuse("tensor-as-value", expr.span, name=expr.name)
            raise self.scope.unknown(expr.name, expr.span)
        whole = [i for i in expr.items if isinstance(i, tree.Slice) and not (i.start or i.stop or i.step)]
        axes = tuple(k for k, i in enumerate(expr.items) if isinstance(i, tree.NewAxis))
        if len(whole) + len(axes) != len(expr.items) or len(whole) > entry.tile.rank:
            raise self.scope.refuse("tile-index", expr.span, name=expr.name)
        value = self._name(tree.Name(expr.name, expr.span))
        assert isinstance(value, Read)
        return newaxis(value, axes)

    # -- pointwise operations

    def pointwise(self, name: str, operands: Sequence[Operand], span: tree.Span) -> Operand:
        """``name`` over ``operands``: broadcast, promoted, weak while all of them are."""
        op = OPS[name]
        shape: tuple[IntExpr, ...] = ()
        for operand in operands:
            both = broadcast(shape, shape_of(operand))
            if both is None:
                shapes = " and ".join(show(shape_of(o)) for o in operands if shape_of(o))
                raise self.scope.refuse(
                    "shape-mismatch", span, what=f"'{op.symbol or name}' cannot combine shapes {shapes}.",
                    remedy="Align them at the right; add dimensions with x[:, None].",
                )  # fmt: skip
            shape = both
        if name == "where":
            return self._where(operands, shape)
        weak = all(strong_dtype(o) is None for o in operands)
        if op.result == "bool":
            inner = DType.BOOL if name.startswith("logical") else common_of(operands)
            return Apply(Type(shape, DType.BOOL), name, tuple(typed(o, inner) for o in operands))
        given = tuple(operands)
        if weak:
            floats = op.result == "float" or any(is_float(o) for o in operands)
            return Weak(floats, lambda dtype: _weak(name, given, dtype, op.result == "float", shape), shape)
        dtype = common_of(operands)
        if op.result == "float" and not dtype.is_float:
            dtype = DType.F32
        if dtype is DType.BOOL and name not in ("min", "max"):
            dtype = DType.I64
        return Apply(Type(shape, dtype), name, tuple(typed(o, dtype) for o in operands))

    def _where(self, operands: Sequence[Operand], shape: tuple[IntExpr, ...]) -> Operand:
        cond = typed(operands[0], DType.BOOL)
        branches = tuple(operands[1:])

        def build(dtype: DType) -> Value:
            return Apply(Type(shape, dtype), "where", (cond, *(typed(b, dtype) for b in branches)))

        if all(strong_dtype(b) is None for b in branches):
            return Weak(any(is_float(b) for b in branches), build, shape)
        return build(common_of(branches))


def newaxis(value: Value, axes: tuple[int, ...]) -> Value:
    """``value`` with new dimensions of 1 at positions ``axes`` of the result."""
    if not axes:
        return value
    shape = list(value.type.shape)
    for axis in axes:
        shape.insert(axis, num(1))
    return Apply(Type(tuple(shape), value.type.dtype), "newaxis", (value,), (("axes", axes),))


def _literal(value: int | float) -> Operand:
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
    """What ``inf`` and ``-inf`` are among the integers: the largest and the smallest."""
    if dtype is DType.BOOL:
        return high
    if dtype is DType.U8:
        return 255 if high else 0
    limit = 1 << (8 * dtype.bytes - 1)
    return limit - 1 if high else -limit


def _weak(name: str, operands: Sequence[Operand], dtype: DType, floats: bool, shape: tuple[IntExpr, ...]) -> Value:
    """An operation on weak numbers in the dtype that their context gave them."""
    inner = dtype.compute
    if not inner.is_float and (floats or any(is_float(o) for o in operands)):
        inner = DType.F32
    result = Apply(Type(shape, inner), name, tuple(typed(o, inner) for o in operands))
    return cast(result, dtype)


#: how a reader of calls is asked for an operation's value
CallHandler = Callable[[tree.Call], Operand]
