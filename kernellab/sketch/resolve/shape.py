"""Operations that make or move elements without arithmetic: transpose, reshape, broadcast, full, arange, concat."""

from __future__ import annotations

from collections.abc import Mapping

from kernellab.sketch.program import affine
from kernellab.sketch.program.ints import IntExpr, int_op, num, product
from kernellab.sketch.program.program import Apply, DType, Type, Value
from kernellab.sketch.resolve.arguments import bind_arguments, read_axes, read_axis, read_dtype, read_tile
from kernellab.sketch.resolve.expr import check_fixed, read_index, read_operand, read_shape
from kernellab.sketch.resolve.operands import (
    Operand,
    Weak,
    broadcast,
    cast,
    default_dtype,
    promote,
    same_shape,
    shape_of,
    show,
    strong_dtype,
    typed,
)
from kernellab.sketch.resolve.scope import Rule, Scope
from kernellab.sketch.syntax import tree


def transpose(scope: Scope, expr: tree.Call) -> Operand:
    """``transpose(x, perm)``; the last two dimensions change places where no order is given."""
    bound = bind_arguments(scope, expr, ("x", "perm?"))
    value = read_tile(scope, bound["x"], "transpose")
    rank = len(value.type.shape)
    perm = (*range(rank - 2), rank - 1, rank - 2) if rank > 1 else (0,)
    if "perm" in bound:
        items = bound["perm"].items if isinstance(bound["perm"], tree.List) else (bound["perm"],)
        perm = tuple(read_axes(scope, i, rank, expr.span)[0] for i in items)
    if sorted(perm) != list(range(rank)):
        what = f"{list(perm)} is not an order of {rank} dimensions."
        raise scope.refuse("axis", expr.span, what=what, remedy="Name each dimension once.")
    shape = tuple(value.type.shape[p] for p in perm)
    return Apply(Type(shape, value.type.dtype), "transpose", (value,), (("perm", perm),))


def reshape(scope: Scope, expr: tree.Call) -> Operand:
    """``reshape(x, [..])``: the same elements in row-major order."""
    bound = bind_arguments(scope, expr, ("x", "shape"))
    value = read_tile(scope, bound["x"], "reshape")
    shape = read_shape(scope, bound["shape"])
    if not affine.equal(product(shape), product(value.type.shape)):
        what = f"A tile of shape {show(value.type.shape)} does not have as many elements as {show(shape)}."
        raise scope.refuse("shape-mismatch", expr.span, what=what, remedy="Reshape keeps the number of elements.")
    return Apply(Type(shape, value.type.dtype), "reshape", (value,))


def broadcast_to(scope: Scope, expr: tree.Call) -> Operand:
    """``broadcast(x, [..])`` by NumPy's rule."""
    bound = bind_arguments(scope, expr, ("x", "shape"))
    operand = read_operand(scope, bound["x"])
    shape = read_shape(scope, bound["shape"])
    both = broadcast(shape_of(operand), shape)
    if both is None or not same_shape(both, shape):
        what = f"A tile of shape {show(shape_of(operand))} does not broadcast to {show(shape)}."
        raise scope.refuse("shape-mismatch", expr.span, what=what, remedy="Align the shapes at the right.")
    value = typed(operand, default_dtype(operand))
    return Apply(Type(shape, value.type.dtype), "broadcast", (value,))


def full(scope: Scope, expr: tree.Call) -> Operand:
    """``full([..], value, dtype)``; without a dtype a literal stays weak."""
    bound = bind_arguments(scope, expr, ("shape", "value", "dtype?"))
    shape, operand = read_shape(scope, bound["shape"]), read_operand(scope, bound["value"])
    if shape_of(operand):
        what = "full takes a scalar value."
        raise scope.refuse("arguments", expr.span, what=what, remedy="Use broadcast for a tile.")

    def build(dtype: DType) -> Value:
        return Apply(Type(shape, dtype), "full", (typed(operand, dtype),))

    if "dtype" in bound:
        return build(read_dtype(scope, bound["dtype"]))
    strong = strong_dtype(operand)
    if strong is not None:
        return build(strong)
    return Weak(not isinstance(operand, IntExpr) and isinstance(operand, Weak) and operand.is_float, build, shape)


def arange(scope: Scope, expr: tree.Call) -> Operand:
    """``arange(n)`` or ``arange(start, stop)``, in i64."""
    bound = bind_arguments(scope, expr, ("start", "stop?"))
    first = read_index(scope, bound["start"])
    start, extent = num(0), first
    if "stop" in bound:
        start, extent = first, affine.difference(read_index(scope, bound["stop"]), first)
    check_fixed(scope, extent, expr.span)
    return Apply(Type((extent,), DType.I64), "arange", (), (("start", start),))


def concat(scope: Scope, expr: tree.Call) -> Operand:
    """``concat(a, b, axis=)`` of tiles that agree in the other dimensions."""
    parts = expr.args[0].items if len(expr.args) == 1 and isinstance(expr.args[0], tree.List) else expr.args
    axis_expr = next((k.value for k in expr.keywords if k.name == "axis"), None)
    if len(parts) < 2:
        what = "concat joins two or more tiles."
        raise scope.refuse("arguments", expr.span, what=what, remedy="Write concat(a, b, axis=0).")
    values = [read_tile(scope, g, "concat") for g in parts]
    axis = read_axis(scope, axis_expr, values[0], expr)
    first = values[0].type.shape
    total = first[axis]
    dtype = values[0].type.dtype
    for value in values[1:]:
        shape = value.type.shape
        if len(shape) != len(first) or any(i != axis and not affine.equal(d, first[i]) for i, d in enumerate(shape)):
            what = f"concat cannot join shapes {show(first)} and {show(shape)} along axis {axis}."
            raise scope.refuse("shape-mismatch", expr.span, what=what, remedy="Other dimensions must agree.")
        total = int_op("+", total, shape[axis])
        dtype = dtype if dtype is value.type.dtype else promote(dtype, value.type.dtype)
    result = (*first[:axis], affine.simplify(total), *first[axis + 1 :])
    return Apply(Type(result, dtype), "concat", tuple(cast(v, dtype) for v in values), (("axis", axis),))


SHAPES: Mapping[str, Rule] = {
    "transpose": transpose, "reshape": reshape, "broadcast": broadcast_to, "full": full, "arange": arange,
    "concat": concat,
}  # fmt: skip
