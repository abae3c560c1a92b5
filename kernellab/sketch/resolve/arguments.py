"""Arguments of a call: the parameter of each, and its kind (a tile, axes, a dtype, a word)."""

from __future__ import annotations

from kernellab.sketch.program import affine
from kernellab.sketch.program.ints import IntExpr
from kernellab.sketch.program.program import DType, Value
from kernellab.sketch.resolve.expr import read_index, read_operand
from kernellab.sketch.resolve.operands import Operand, Weak, default_dtype, shape_of, typed
from kernellab.sketch.resolve.scope import Scope, reduction
from kernellab.sketch.syntax import tree
from kernellab.sketch.syntax.messages import nearest
from kernellab.sketch.syntax.printer import format_expr

_DTYPES = {d.value: d for d in DType}


def bind_arguments(scope: Scope, expr: tree.Call, parameters: tuple[str, ...]) -> dict[str, tree.Expr]:
    """Return the call's arguments by parameter. Refuses too many, unknown and missing ones."""
    names = [p.rstrip("?") for p in parameters]
    shown = f"{expr.func}({', '.join(names)})"
    if len(expr.args) > len(names):
        what = f"'{expr.func}' takes {len(names)} argument(s) and {len(expr.args)} are given."
        raise scope.refuse("arguments", expr.span, what=what, remedy=f"Write {shown}.")
    bound: dict[str, tree.Expr] = dict(zip(names, expr.args, strict=False))
    for keyword in expr.keywords:
        if keyword.name not in names:
            what = f"'{expr.func}' has no parameter '{keyword.name}'."
            remedy = nearest(keyword.name, names) or f"Write {shown}."
            raise scope.refuse("arguments", keyword.span, what=what, remedy=remedy)
        if keyword.name in bound:
            what = f"'{keyword.name}' of '{expr.func}' is given twice."
            raise scope.refuse("arguments", keyword.span, what=what, remedy=f"Write {shown}.")
        bound[keyword.name] = keyword.value
    missing = [p for p in parameters if not p.endswith("?") and p not in bound]
    if missing:
        what = f"'{expr.func}' has no {', '.join(missing)}."
        remedy = f"Write {shown}."
        if (over := reduction(expr.func)) and expr.args:
            remedy = f"Write {shown} for two values; of one tile, {over}({format_expr(expr.args[0])}, axis=...)."
        raise scope.refuse("arguments", expr.span, what=what, remedy=remedy)
    return bound


def read_operands(scope: Scope, expr: tree.Call, arity: int) -> list[Operand]:
    """Return the operands of a pointwise operation."""
    bound = bind_arguments(scope, expr, ("a", "b", "c")[:arity] if arity > 1 else ("x",))
    return scope.each(bound.values(), lambda operand: read_operand(scope, operand))


def read_tile(scope: Scope, expr: tree.Expr, operation: str) -> Value:
    """Return ``expr`` as a typed value of rank 1 or more."""
    operand = read_operand(scope, expr)
    if isinstance(operand, Weak) and operand.shape:
        return typed(operand, default_dtype(operand))
    if isinstance(operand, (IntExpr, Weak)) or not shape_of(operand):
        what = f"'{operation}' works on a tile, and this is a scalar."
        raise scope.refuse("axis", expr.span, what=what, remedy="Give it a tile.")
    return operand


def read_axes(scope: Scope, argument: tree.Expr | None, rank: int, span: tree.Span) -> tuple[int, ...]:
    """Return axes from 0, in order; all axes if none is given."""
    if argument is None:
        return tuple(range(rank))
    items = argument.items if isinstance(argument, tree.List) else (argument,)
    axes = []
    for item in items:
        axis = affine.constant(read_index(scope, item))
        if axis is None or not -rank <= axis < rank:
            has = "one dimension" if rank == 1 else f"{rank} dimensions"
            what = f"Axis {'?' if axis is None else axis} does not exist: the tile has {has}."
            remedy = "Use axis 0." if rank == 1 else f"Use 0 to {rank - 1}, or negative ones."
            raise scope.refuse("axis", span, what=what, remedy=remedy)
        axes.append(axis % rank)
    return tuple(sorted(set(axes)))


def read_axis(scope: Scope, argument: tree.Expr | None, value: Value, expr: tree.Call) -> int:
    """Return the axis of an operation along one axis."""
    axes = read_axes(scope, argument, len(value.type.shape), expr.span)
    if len(axes) != 1:
        what = f"'{expr.func}' of a tile of {len(value.type.shape)} dimensions needs one axis."
        raise scope.refuse("axis", expr.span, what=what, remedy="Write axis=.")
    return axes[0]


def read_flag(
    scope: Scope, argument: tree.Expr | None, span: tree.Span, name: str = "keepdims", default: bool = False
) -> bool:
    """Return the value of a parameter that is true or false; ``name`` is the keyword."""
    if argument is None:
        return default
    if not isinstance(argument, tree.Bool):
        raise scope.refuse("arguments", span, what=f"{name} is true or false.", remedy=f"Write {name}=true.")
    return argument.value


def read_dtype(scope: Scope, expr: tree.Expr) -> DType:
    """Return the dtype that is written as a name or a string."""
    word = expr.id if isinstance(expr, tree.Name) else expr.value if isinstance(expr, tree.Str) else "?"
    if word not in _DTYPES:
        remedy = nearest(word, _DTYPES) or f"Use one of {', '.join(_DTYPES)}."
        raise scope.refuse("unknown-dtype", expr.span, name=word, remedy=remedy)
    return _DTYPES[word]


def read_word(scope: Scope, expr: tree.Expr | None, allowed: tuple[str, ...], what: str) -> str:
    """Return one of ``allowed``, the first if none is given."""
    if expr is None:
        return allowed[0]
    word = expr.value if isinstance(expr, tree.Str) else expr.id if isinstance(expr, tree.Name) else "?"
    if word not in allowed:
        remedy = nearest(word, allowed) or f"Use one of {', '.join(allowed)}."
        raise scope.refuse("arguments", expr.span, what=f"Unknown {what} '{word}'.", remedy=remedy)
    return word
