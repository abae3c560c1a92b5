"""Calls of the operation table, and the type of what each operation gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kernellab.sketch import affine, tree
from kernellab.sketch.ints import IntExpr, int_op, num
from kernellab.sketch.operands import (
    Operand,
    accumulator,
    broadcast,
    cast,
    common_of,
    gemm_accumulator,
    promote,
    same_shape,
    show,
    typed,
)
from kernellab.sketch.ops import OPS, OpKind
from kernellab.sketch.printer import format_expr
from kernellab.sketch.program import Apply, Assign, DType, Read, Tile, Type, Value
from kernellab.sketch.resolve_arguments import ArgumentReader
from kernellab.sketch.resolve_shape import SHAPES
from kernellab.sketch.scope import LetEntry

PRECISIONS = ("ieee", "tf32", "tf32x3", "bf16x3", "bf16x6", "bf16")
COMBINES = ("add", "mul", "max", "min", "linear")


class CallReader(ArgumentReader):
    """Adds calls to the reader of expressions and arguments."""

    def call(self, expr: tree.Call) -> Operand:
        name = expr.func
        if expr.misordered:
            self.scope.note("keyword-order", expr.span, name=name)
        if name in self.scope.names.opaques:
            return self._opaque(expr)
        if name in ("load", "store", "atomic_add", "gather", "scatter"):
            what, remedy = f"'{name}' is a statement.", f"Write it on its own: {name}(... -> ...)."
            raise self.scope.refuse("arguments", expr.span, what=what, remedy=remedy)
        if name == "alloc":
            what = "alloc gives a tile, not a value."
            raise self.scope.refuse("arguments", expr.span, what=what, remedy="Write name = alloc([...]) on its own.")
        if name not in OPS:
            raise self.scope.unknown_operation(name, expr.span)
        if name == "gemm":
            raise self.gemm_value(expr, "c")
        if name == "welford":
            what, remedy = "welford gives two results.", "Write mean, var = welford(x, axis=0)."
            raise self.scope.refuse("arguments", expr.span, what=what, remedy=remedy)
        if name in ("sort", "topk"):
            what, remedy = f"{name} gives two results.", f"Write values, order = {name}(x, ...)."
            raise self.scope.refuse("arguments", expr.span, what=what, remedy=remedy)
        if name in ("min", "max", "ceil") and len(expr.args) >= 2 and not expr.keywords:
            return self._index_call(expr)
        handler = _HANDLERS.get(name)
        if handler is not None:
            return handler(self, expr)
        kind = OPS[name].kind
        if kind is OpKind.REDUCE:
            return self._reduce(expr)
        if kind is OpKind.SCAN:
            return self._scan(expr)
        return self.pointwise(name, self.operands(expr, OPS[name].arity), expr.span)

    def gemm_value(self, expr: tree.Call, target: str) -> Exception:
        """What is wrong with ``target = gemm(a, b)``."""
        a, b = ([format_expr(x) for x in expr.args] + ["a", "b"])[:2]
        return self.scope.refuse("gemm-assign", expr.span, target=target, a=a, b=b)

    def _index_call(self, expr: tree.Call) -> Operand:
        operands = [self.operand(a) for a in expr.args]
        if all(isinstance(o, IntExpr) for o in operands):
            op = "cdiv" if expr.func == "ceil" else expr.func
            result = operands[0]
            for operand in operands[1:]:
                assert isinstance(result, IntExpr) and isinstance(operand, IntExpr)
                if op == "cdiv" and affine.constant(operand) == 0:
                    what = "Division by zero."
                    raise self.scope.refuse("arguments", expr.span, what=what, remedy="Correct the divisor.")
                result = int_op(op, result, operand)
            return result
        if expr.func == "ceil":
            what = "ceil(p, q) divides index expressions, and one of these is not."
            raise self.scope.refuse("arguments", expr.span, what=what, remedy="Write ceil(x) for a tile.")
        result = operands[0]
        for operand in operands[1:]:
            result = self.pointwise(expr.func, [result, operand], expr.span)
        return result

    def reduction(self, expr: tree.Call) -> tuple[Value, tuple[int, ...], bool, tuple[IntExpr, ...]]:
        """The operand of a reduction, its axes, keepdims, and the shape of the result."""
        bound = self.bind(expr, ("x", "axis?", "keepdims?"))
        value = self.tile(bound["x"], expr.func)
        shape = value.type.shape
        axes = self.axes(bound.get("axis"), len(shape), expr.span)
        keepdims = self.flag(bound.get("keepdims"), expr.span)
        kept = tuple(num(1) if i in axes else d for i, d in enumerate(shape) if keepdims or i not in axes)
        return value, axes, keepdims, kept

    def _reduce(self, expr: tree.Call) -> Operand:
        name = expr.func
        value, axes, keepdims, shape = self.reduction(expr)
        dtype = value.type.dtype
        attrs = (("axes", axes), ("keepdims", keepdims))
        if name in ("argmax", "argmin"):
            if len(axes) != 1:
                what = f"'{name}' of a tile of {len(value.type.shape)} dimensions needs one axis."
                raise self.scope.refuse("axis", expr.span, what=what, remedy="Write axis=.")
            return Apply(Type(shape, DType.I64), name, (cast(value, dtype.compute),), attrs)
        if name in ("reduce_sum", "reduce_prod"):
            dtype = accumulator(dtype)
        elif name == "reduce_any":
            dtype = DType.BOOL
        elif name == "reduce_mean":
            dtype = dtype.compute if dtype.is_float else DType.F32
        else:
            dtype = dtype.compute
        return Apply(Type(shape, dtype), name, (cast(value, dtype),), attrs)

    def _scan(self, expr: tree.Call) -> Operand:
        name = expr.func
        if name == "associative_scan":
            return self._associative(expr)
        bound = self.bind(expr, ("x", "axis?", "reverse?"))
        value = self.tile(bound["x"], name)
        axis = self.one_axis(bound.get("axis"), value, expr)
        dtype = value.type.dtype.compute
        if name in ("cumsum", "cumprod"):
            dtype = accumulator(dtype)
        attrs = (("axis", axis), *self._direction(bound, expr))
        return Apply(Type(value.type.shape, dtype), name, (cast(value, dtype),), attrs)

    def _direction(self, bound: dict[str, tree.Expr], expr: tree.Call) -> tuple[tuple[str, object], ...]:
        """The attribute of a scan that runs from the last element to the first; none of one that does not."""
        return (("reverse", True),) if self.flag(bound.get("reverse"), expr.span, "reverse") else ()

    def _associative(self, expr: tree.Call) -> Operand:
        first = expr.args[0] if expr.args else None
        combine = self.word(first, COMBINES, "combination") if first is not None else ""
        operands = ("a", "x") if combine == "linear" else ("x",)
        parameters = ("op", *operands, "axis?", "reverse?")
        bound = self.bind(expr, parameters)
        values = [self.tile(bound[p], expr.func) for p in ("a", "x") if p in bound]
        for value in values[1:]:
            if not same_shape(value.type.shape, values[0].type.shape):
                what = f"The scan's tiles have shapes {show(values[0].type.shape)} and {show(value.type.shape)}."
                raise self.scope.refuse("shape-mismatch", expr.span, what=what, remedy="Give tiles of one shape.")
        axis = self.one_axis(bound.get("axis"), values[0], expr)
        dtype = common_of(values)
        attrs = (("axis", axis), ("combine", combine), *self._direction(bound, expr))
        return Apply(Type(values[0].type.shape, dtype), expr.func, tuple(cast(v, dtype) for v in values), attrs)

    def _softmax(self, expr: tree.Call) -> Operand:
        """Expands to max, exp and sum; the exponentials get a tile of their own, for they are used twice."""
        if len(expr.args) < 2 and not any(k.name == "axis" for k in expr.keywords):
            what = "'softmax' needs its axis."
            raise self.scope.refuse("axis", expr.span, what=what, remedy="Write softmax(x, axis=-1).")
        bound = self.bind(expr, ("x", "axis"))
        value = self.tile(bound["x"], "softmax")
        dtype = value.type.dtype.compute if value.type.dtype.is_float else DType.F32
        value = cast(value, dtype)
        shape = value.type.shape
        axes = self.axes(bound["axis"], len(shape), expr.span)
        kept = Type(tuple(num(1) if i in axes else d for i, d in enumerate(shape)), dtype)
        attrs = (("axes", axes), ("keepdims", True))
        shifted = Apply(value.type, "sub", (value, Apply(kept, "reduce_max", (value,), attrs)))
        exps = self._temporary("softmax_exp", Apply(value.type, "exp", (shifted,)), expr.span)
        return Apply(value.type, "div", (exps, Apply(kept, "reduce_sum", (exps,), attrs)))

    def _temporary(self, name: str, value: Value, span: tree.Span) -> Read:
        """A tile for a value that is used twice, assigned before the statement being resolved."""
        tile = Tile(name, self.scope.uid(name), value.type.shape, value.type.dtype)
        self.scope.pending.append(Assign(tile, value, True, span))
        return Read(value.type, tile)

    def _cast(self, expr: tree.Call) -> Operand:
        bound = self.bind(expr, ("x", "dtype"))
        operand = self.operand(bound["x"])
        return typed(operand, self.dtype(bound["dtype"]))

    def matrix(self, a: tree.Expr, b: tree.Expr, operation: str, span: tree.Span) -> tuple[Value, Value, Type]:
        """Both factors of a product and the type of the result."""
        left, right = self.tile(a, operation), self.tile(b, operation)
        x, y = left.type.shape, right.type.shape
        if len(x) < 2 or len(y) < 2:
            what = f"'{operation}' multiplies matrices, and a shape here is {show(x if len(x) < 2 else y)}."
            remedy = "Add a dimension with x[None, :], or write reduce_sum(a * b, axis=...)."
            raise self.scope.refuse("shape-mismatch", span, what=what, remedy=remedy)
        batch = broadcast(x[:-2], y[:-2])
        if batch is None or not affine.equal(x[-1], y[-2]):
            what = f"'{operation}' cannot multiply {show(x)} and {show(y)}."
            remedy = "The last dimension of the first must be the last but one of the second."
            raise self.scope.refuse("shape-mismatch", span, what=what, remedy=remedy)
        if left.type.dtype is not right.type.dtype:
            both = promote(left.type.dtype, right.type.dtype)
            left, right = cast(left, both), cast(right, both)
        dtype = gemm_accumulator(left.type.dtype, right.type.dtype)
        return left, right, Type((*batch, x[-2], y[-1]), dtype)

    def _dot(self, expr: tree.Call) -> Operand:
        bound = self.bind(expr, ("a", "b", "precision?"))
        a, b, result = self.matrix(bound["a"], bound["b"], "dot", expr.span)
        precision = self.word(bound.get("precision"), PRECISIONS, "precision")
        return Apply(result, "dot", (a, b), (("precision", precision),))

    def _where_call(self, expr: tree.Call) -> Operand:
        bound = self.bind(expr, ("cond", "a", "b"))
        return self.pointwise("where", [self.operand(bound[p]) for p in ("cond", "a", "b")], expr.span)

    def _clamp(self, expr: tree.Call) -> Operand:
        bound = self.bind(expr, ("x", "min", "max"))
        return self.pointwise("clamp", [self.operand(bound[p]) for p in ("x", "min", "max")], expr.span)

    def _opaque(self, expr: tree.Call) -> Operand:
        declared = self.scope.names.opaques[expr.func]
        self.scope.opaque.add(expr.func)
        bound = self.bind(expr, tuple(p.name for p in declared.params))
        values = []
        formal: dict[str, IntExpr] = {}
        for param in declared.params:
            value = self.value(bound[param.name], self.dtype(tree.Name(param.dtype, param.span)))
            if len(value.type.shape) != len(param.shape):
                what = f"'{param.name}' of '{expr.func}' has {len(param.shape)} dimension(s)."
                raise self.scope.refuse("shape-mismatch", expr.span, what=what, remedy="Give a tile of that rank.")
            for dim, extent in zip(param.shape, value.type.shape, strict=True):
                if isinstance(dim, tree.Name):
                    formal.setdefault(dim.id, extent)
            values.append(value)
        with self.scope.block():
            for name, extent in formal.items():
                self.scope.bind(name, LetEntry(extent))
            shape = self.shape(tree.List(declared.result_shape, declared.span))
        dtype = self.dtype(tree.Name(declared.result_dtype, declared.span))
        return Apply(Type(shape, dtype), expr.func, tuple(values))


_HANDLERS: Mapping[str, Callable[[CallReader, tree.Call], Operand]] = {
    **SHAPES,
    "cast": CallReader._cast,
    "softmax": CallReader._softmax,
    "dot": CallReader._dot,
    "where": CallReader._where_call,
    "clamp": CallReader._clamp,
}
