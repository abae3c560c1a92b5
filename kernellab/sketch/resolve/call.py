"""Calls of the operation table, and the type of each operation's result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kernellab.errors import counted
from kernellab.operations.sketch import OPS, OpKind
from kernellab.sketch.program import affine
from kernellab.sketch.program.ints import IntExpr, int_op, num
from kernellab.sketch.program.library import LIBRARY, PREFIX
from kernellab.sketch.program.program import FLOAT8, Apply, Assign, DType, Read, Tile, Type, Value
from kernellab.sketch.resolve.arguments import (
    bind_arguments,
    read_axes,
    read_axis,
    read_dtype,
    read_flag,
    read_operands,
    read_tile,
    read_word,
)
from kernellab.sketch.resolve.expr import EXPRESSIONS, pointwise, read_operand, read_shape, read_value
from kernellab.sketch.resolve.operands import (
    Operand,
    accumulator,
    broadcast,
    cast,
    common_of,
    default_dtype,
    gemm_accumulator,
    is_float,
    promote,
    same_shape,
    show,
    strong_dtype,
    typed,
)
from kernellab.sketch.resolve.scope import LetEntry, Rule, Scope
from kernellab.sketch.resolve.shape import SHAPES
from kernellab.sketch.syntax import tree
from kernellab.sketch.syntax.printer import format_expr

PRECISIONS = ("ieee", "tf32", "tf32x3", "bf16x3", "bf16x6", "bf16")
COMBINES = ("add", "mul", "max", "min", "linear")


def read_call(scope: Scope, expr: tree.Call) -> Operand:
    """Return the value of a call, by the rule of its operation, else of its kind of operation."""
    name = expr.func
    if expr.misordered:
        scope.note("keyword-order", expr.span, name=name)
    if name in scope.names.opaques:
        return _opaque(scope, expr)
    if name in _NO_VALUE:
        what, remedy = _NO_VALUE[name]
        raise scope.refuse("arguments", expr.span, what=what, remedy=remedy)
    if name.removeprefix(PREFIX) in LIBRARY and name.startswith(PREFIX):
        what = f"'{name}' works on whole tensors and is not a value in an expression."
        raise scope.refuse("library", expr.span, what=what, remedy=f"In a separate sketch, write y = {name}(...).")
    if name not in OPS:
        raise scope.unknown_operation(name, expr.span)
    if name in _INDEX_CALLS and len(expr.args) >= 2 and not expr.keywords:
        return _index_call(scope, expr)
    rule = _BY_NAME.get(name) or _BY_KIND.get(OPS[name].kind, _elementwise)
    return rule(scope, expr)


def _elementwise(scope: Scope, expr: tree.Call) -> Operand:
    return pointwise(scope, expr.func, read_operands(scope, expr, OPS[expr.func].arity), expr.span)


def _gemm_alone(scope: Scope, expr: tree.Call) -> Operand:
    raise gemm_value(scope, expr, "c")


def gemm_value(scope: Scope, expr: tree.Call, target: str) -> Exception:
    """Refuse ``target = gemm(a, b)``."""
    a, b = ([format_expr(x) for x in expr.args] + ["a", "b"])[:2]
    return scope.refuse("gemm-assign", expr.span, target=target, a=a, b=b)


def _index_call(scope: Scope, expr: tree.Call) -> Operand:
    operands = scope.each(expr.args, lambda argument: read_operand(scope, argument))
    if all(isinstance(o, IntExpr) for o in operands):
        op = "cdiv" if expr.func == "ceil" else expr.func
        result = operands[0]
        for operand in operands[1:]:
            assert isinstance(result, IntExpr) and isinstance(operand, IntExpr)
            if op == "cdiv" and affine.constant(operand) == 0:
                what = "Division by zero."
                raise scope.refuse("arguments", expr.span, what=what, remedy="Correct the divisor.")
            result = int_op(op, result, operand)
        return result
    if expr.func == "ceil":
        what = "ceil(p, q) divides index expressions, and one of these is not."
        raise scope.refuse("arguments", expr.span, what=what, remedy="Write ceil(x) for a tile.")
    result = operands[0]
    for operand in operands[1:]:
        result = pointwise(scope, expr.func, [result, operand], expr.span)
    return result


class Reduction(NamedTuple):
    """The arguments of a reduction, and the shape of its result."""

    operand: Value
    axes: tuple[int, ...]
    keepdims: bool
    shape: tuple[IntExpr, ...]

    @property
    def attrs(self) -> tuple[tuple[str, object], ...]:
        """The attributes of the operation."""
        return (("axes", self.axes), ("keepdims", self.keepdims))


def read_reduction(scope: Scope, expr: tree.Call) -> Reduction:
    """Return what a reduction reduces, and how."""
    bound = bind_arguments(scope, expr, ("x", "axis?", "keepdims?"))
    value = read_tile(scope, bound["x"], expr.func)
    shape = value.type.shape
    axes = read_axes(scope, bound.get("axis"), len(shape), expr.span)
    keepdims = read_flag(scope, bound.get("keepdims"), expr.span)
    reduced = tuple(num(1) if i in axes else d for i, d in enumerate(shape) if keepdims or i not in axes)
    return Reduction(value, axes, keepdims, reduced)


def _reduce(scope: Scope, expr: tree.Call) -> Operand:
    name = expr.func
    reduction = read_reduction(scope, expr)
    value = reduction.operand
    dtype = value.type.dtype
    if name in ("argmax", "argmin"):
        if len(reduction.axes) != 1:
            what = f"'{name}' of a tile of {len(value.type.shape)} dimensions needs one axis."
            raise scope.refuse("axis", expr.span, what=what, remedy="Write axis=.")
        return Apply(Type(reduction.shape, DType.I64), name, (cast(value, dtype.compute),), reduction.attrs)
    if name in ("reduce_sum", "reduce_prod"):
        dtype = accumulator(dtype)
    elif name == "reduce_any":
        dtype = DType.BOOL
    elif name == "reduce_mean":
        dtype = dtype.compute if dtype.is_float else DType.F32
    else:
        dtype = dtype.compute
    return Apply(Type(reduction.shape, dtype), name, (cast(value, dtype),), reduction.attrs)


def _scan(scope: Scope, expr: tree.Call) -> Operand:
    name = expr.func
    bound = bind_arguments(scope, expr, ("x", "axis?", "reverse?"))
    value = read_tile(scope, bound["x"], name)
    axis = read_axis(scope, bound.get("axis"), value, expr)
    dtype = value.type.dtype.compute
    if name in ("cumsum", "cumprod"):
        dtype = accumulator(dtype)
    attrs = (("axis", axis), *_direction(scope, bound, expr))
    return Apply(Type(value.type.shape, dtype), name, (cast(value, dtype),), attrs)


def _direction(scope: Scope, bound: dict[str, tree.Expr], expr: tree.Call) -> tuple[tuple[str, object], ...]:
    """Return the attributes of a scan: that of a scan from the last element to the first, or none."""
    return (("reverse", True),) if read_flag(scope, bound.get("reverse"), expr.span, "reverse") else ()


def _associative(scope: Scope, expr: tree.Call) -> Operand:
    first = expr.args[0] if expr.args else None
    combine = read_word(scope, first, COMBINES, "combination") if first is not None else ""
    operands = ("a", "x") if combine == "linear" else ("x",)
    parameters = ("op", *operands, "axis?", "reverse?")
    bound = bind_arguments(scope, expr, parameters)
    values = [read_tile(scope, bound[p], expr.func) for p in ("a", "x") if p in bound]
    for value in values[1:]:
        if not same_shape(value.type.shape, values[0].type.shape):
            what = f"The scan's tiles have shapes {show(values[0].type.shape)} and {show(value.type.shape)}."
            raise scope.refuse("shape-mismatch", expr.span, what=what, remedy="Give tiles of one shape.")
    axis = read_axis(scope, bound.get("axis"), values[0], expr)
    dtype = common_of(values)
    attrs = (("axis", axis), ("combine", combine), *_direction(scope, bound, expr))
    return Apply(Type(values[0].type.shape, dtype), expr.func, tuple(cast(v, dtype) for v in values), attrs)


def _softmax(scope: Scope, expr: tree.Call) -> Operand:
    """Expand to max, exp and sum; the exponentials get a separate tile, since they are used twice."""
    bound = bind_arguments(scope, expr, ("x", "axis?"))
    value = read_tile(scope, bound["x"], "softmax")
    dtype = value.type.dtype.compute if value.type.dtype.is_float else DType.F32
    value = cast(value, dtype)
    shape = value.type.shape
    axes = read_axes(scope, bound["axis"], len(shape), expr.span) if "axis" in bound else (len(shape) - 1,)
    reduced = Type(tuple(num(1) if i in axes else d for i, d in enumerate(shape)), dtype)
    attrs = (("axes", axes), ("keepdims", True))
    shifted = Apply(value.type, "sub", (value, Apply(reduced, "reduce_max", (value,), attrs)))
    exps = _temporary(scope, "softmax_exp", Apply(value.type, "exp", (shifted,)), expr.span)
    return Apply(value.type, "div", (exps, Apply(reduced, "reduce_sum", (exps,), attrs)))


def _temporary(scope: Scope, name: str, value: Value, span: tree.Span) -> Read:
    """Return a tile for a value that is used twice, assigned before the current statement."""
    tile = Tile(name, scope.uid(name), value.type.shape, value.type.dtype)
    scope.pending.append(Assign(tile, value, True, span))
    return Read(value.type, tile)


def _cast(scope: Scope, expr: tree.Call) -> Operand:
    bound = bind_arguments(scope, expr, ("x", "dtype"))
    operand = read_operand(scope, bound["x"])
    return typed(operand, read_dtype(scope, bound["dtype"]))


def _bitcast(scope: Scope, expr: tree.Call) -> Operand:
    bound = bind_arguments(scope, expr, ("x", "dtype"))
    operand, dtype = read_operand(scope, bound["x"]), read_dtype(scope, bound["dtype"])
    source = strong_dtype(operand)
    if source is None:
        # a number takes the dtype of its kind that has as many bytes
        kinds = [d for d in (DType.F32, DType.F64) if is_float(operand)] or [DType.I32, DType.I64, DType.I16, DType.U8]
        source = next((d for d in kinds if d.bytes == dtype.bytes), default_dtype(operand))
    if DType.BOOL in (source, dtype) or source.bytes != dtype.bytes:
        what = f"bitcast reads {source.value} ({_bytes(source)}) as {dtype.value} ({_bytes(dtype)})."
        remedy = "Name a dtype of as many bytes, or cast the operand first; bool has no bits to read."
        raise scope.refuse("arguments", expr.span, what=what, remedy=remedy)
    value = typed(operand, source)
    return value if source is dtype else Apply(Type(value.type.shape, dtype), "bitcast", (value,))


def _bytes(dtype: DType) -> str:
    return counted(dtype.bytes, "byte")


def read_factors(
    scope: Scope, a: tree.Expr, b: tree.Expr, operation: str, span: tree.Span
) -> tuple[Value, Value, Type]:
    """Return both factors of a product and the type of the result."""
    left, right = scope.each((a, b), lambda factor: read_tile(scope, factor, operation))
    left_shape, right_shape = left.type.shape, right.type.shape
    if len(left_shape) < 2 or len(right_shape) < 2:
        vector = left_shape if len(left_shape) < 2 else right_shape
        what = f"'{operation}' multiplies matrices, and a shape here is {show(vector)}."
        remedy = "Add a dimension with x[None, :], or write reduce_sum(a * b, axis=...)."
        raise scope.refuse("shape-mismatch", span, what=what, remedy=remedy)
    batch = broadcast(left_shape[:-2], right_shape[:-2])
    if batch is None or not affine.equal(left_shape[-1], right_shape[-2]):
        what = f"'{operation}' cannot multiply {show(left_shape)} and {show(right_shape)}."
        remedy = "The last dimension of the first must be the last but one of the second."
        raise scope.refuse("shape-mismatch", span, what=what, remedy=remedy)
    if left.type.dtype is not right.type.dtype and not {left.type.dtype, right.type.dtype} <= FLOAT8:
        both = promote(left.type.dtype, right.type.dtype)
        left, right = cast(left, both), cast(right, both)
    dtype = gemm_accumulator(left.type.dtype, right.type.dtype)
    return left, right, Type((*batch, left_shape[-2], right_shape[-1]), dtype)


def _dot(scope: Scope, expr: tree.Call) -> Operand:
    bound = bind_arguments(scope, expr, ("a", "b", "precision?"))
    a, b, result = read_factors(scope, bound["a"], bound["b"], "dot", expr.span)
    precision = read_word(scope, bound.get("precision"), PRECISIONS, "precision")
    return Apply(result, "dot", (a, b), (("precision", precision),))


def _with_named_operands(*parameters: str) -> Rule:
    """Return the rule of a pointwise operation whose operands have these names."""

    def rule(scope: Scope, expr: tree.Call) -> Operand:
        bound = bind_arguments(scope, expr, parameters)
        operands = scope.each((bound[p] for p in parameters), lambda operand: read_operand(scope, operand))
        return pointwise(scope, expr.func, operands, expr.span)

    return rule


def _opaque(scope: Scope, expr: tree.Call) -> Operand:
    declared = scope.names.opaques[expr.func]
    scope.opaque.add(expr.func)
    bound = bind_arguments(scope, expr, tuple(p.name for p in declared.params))
    values = []
    #: name in a declared parameter's shape -> the argument's extent
    extents: dict[str, IntExpr] = {}
    for param in declared.params:
        value = read_value(scope, bound[param.name], read_dtype(scope, tree.Name(param.dtype, param.span)))
        if len(value.type.shape) != len(param.shape):
            what = f"'{param.name}' of '{expr.func}' has {counted(len(param.shape), 'dimension')}."
            raise scope.refuse("shape-mismatch", expr.span, what=what, remedy="Give a tile of that rank.")
        for dim, extent in zip(param.shape, value.type.shape, strict=True):
            if isinstance(dim, tree.Name):
                extents.setdefault(dim.id, extent)
        values.append(value)
    with scope.block():
        for name, extent in extents.items():
            scope.bind(name, LetEntry(extent))
        shape = read_shape(scope, tree.List(declared.result_shape, declared.span))
    dtype = read_dtype(scope, tree.Name(declared.result_dtype, declared.span))
    return Apply(Type(shape, dtype), expr.func, tuple(values))


#: calls that are statements, or have several results: the error if one is used as a value, and the remedy
_NO_VALUE: Mapping[str, tuple[str, str]] = {
    **{
        move: (f"'{move}' is a statement.", f"Write it on its own: {move}(... -> ...).")
        for move in ("load", "store", "atomic_add", "gather", "scatter")
    },
    "alloc": ("alloc gives a tile, not a value.", "Write name = alloc([...]) on its own."),
    "welford": ("welford gives two results.", "Write mean, var = welford(x, axis=0)."),
    "sort": ("sort gives two results.", "Write values, order = sort(x, ...)."),
    "topk": ("topk gives two results.", "Write values, order = topk(x, ...)."),
}
#: operations that are index arithmetic if their arguments are index expressions
_INDEX_CALLS = frozenset(("min", "max", "ceil"))
_BY_NAME: Mapping[str, Rule] = {
    **SHAPES, "gemm": _gemm_alone, "cast": _cast, "bitcast": _bitcast, "softmax": _softmax, "dot": _dot,
    "where": _with_named_operands("cond", "a", "b"), "clamp": _with_named_operands("x", "min", "max"),
    "associative_scan": _associative,
}  # fmt: skip
_BY_KIND: Mapping[OpKind, Rule] = {OpKind.REDUCE: _reduce, OpKind.SCAN: _scan}

#: the rule for each kind of expression
RULES: Mapping[type, Rule] = {**EXPRESSIONS, tree.Call: read_call}
