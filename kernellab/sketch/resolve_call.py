"""Calls of the operation table: arguments to parameters, and the type of what each operation gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kernellab.sketch import affine, tree
from kernellab.sketch.ints import IntExpr, int_op, num
from kernellab.sketch.messages import nearest
from kernellab.sketch.operands import (
    Operand,
    Weak,
    accumulator,
    broadcast,
    cast,
    common_of,
    default_dtype,
    gemm_accumulator,
    promote,
    same_shape,
    shape_of,
    show,
    strong_dtype,
    typed,
)
from kernellab.sketch.ops import OPS, OpKind
from kernellab.sketch.program import Apply, Assign, DType, Read, Tile, Type, Value
from kernellab.sketch.resolve_expr import ExpressionReader
from kernellab.sketch.scope import LetEntry

PRECISIONS = ("ieee", "tf32", "tf32x3", "bf16x3", "bf16x6", "bf16")
COMBINES = ("add", "mul", "max", "min", "linear")
_DTYPES = {d.value: d for d in DType}

#: parameters of the operations that are not pointwise, in order; a trailing ? marks an optional one
_SIGNATURES: dict[str, tuple[str, ...]] = {
    "where": ("cond", "a", "b"),
    "clamp": ("x", "min", "max"),
    "cast": ("x", "dtype"),
    "softmax": ("x", "axis"),
    "dot": ("a", "b", "precision?"),
    "transpose": ("x", "perm?"),
    "reshape": ("x", "shape"),
    "broadcast": ("x", "shape"),
    "full": ("shape", "value", "dtype?"),
    "arange": ("start", "stop?"),
    "welford": ("x", "axis?", "keepdims?"),
}
_REDUCTION = ("x", "axis?", "keepdims?")
_SCAN = ("x", "axis?")


class CallReader(ExpressionReader):
    """Adds calls to the reader of expressions."""

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
        return self.pointwise(name, self._operands(expr, OPS[name].arity), expr.span)

    def gemm_value(self, expr: tree.Call, target: str) -> Exception:
        from kernellab.sketch.printer import format_expr

        a, b = ([format_expr(x) for x in expr.args] + ["a", "b"])[:2]
        return self.scope.refuse("gemm-assign", expr.span, target=target, a=a, b=b)

    # -- arguments

    def bind(self, expr: tree.Call, parameters: tuple[str, ...]) -> dict[str, tree.Expr]:
        """The call's arguments by parameter. Refuses too many, unknown and missing ones."""
        names = [p.rstrip("?") for p in parameters]
        shown = f"{expr.func}({', '.join(names)})"
        if len(expr.args) > len(names):
            what = f"'{expr.func}' takes {len(names)} argument(s) and {len(expr.args)} are given."
            raise self.scope.refuse("arguments", expr.span, what=what, remedy=f"Write {shown}.")
        bound: dict[str, tree.Expr] = dict(zip(names, expr.args, strict=False))
        for keyword in expr.keywords:
            if keyword.name not in names:
                what = f"'{expr.func}' has no parameter '{keyword.name}'."
                remedy = nearest(keyword.name, names) or f"Write {shown}."
                raise self.scope.refuse("arguments", keyword.span, what=what, remedy=remedy)
            if keyword.name in bound:
                what = f"'{keyword.name}' of '{expr.func}' is given twice."
                raise self.scope.refuse("arguments", keyword.span, what=what, remedy=f"Write {shown}.")
            bound[keyword.name] = keyword.value
        missing = [p for p in parameters if not p.endswith("?") and p not in bound]
        if missing:
            what = f"'{expr.func}' lacks {', '.join(missing)}."
            raise self.scope.refuse("arguments", expr.span, what=what, remedy=f"Write {shown}.")
        return bound

    def _operands(self, expr: tree.Call, arity: int) -> list[Operand]:
        bound = self.bind(expr, ("a", "b", "c")[:arity] if arity > 1 else ("x",))
        return [self.operand(e) for e in bound.values()]

    def tile(self, expr: tree.Expr, operation: str) -> Value:
        """``expr`` as a typed value of rank 1 or more."""
        operand = self.operand(expr)
        if isinstance(operand, Weak) and operand.shape:
            return typed(operand, default_dtype(operand))
        if isinstance(operand, (IntExpr, Weak)) or not shape_of(operand):
            what = f"'{operation}' works on a tile, and this is a scalar."
            raise self.scope.refuse("axis", expr.span, what=what, remedy="Give it a tile.")
        return operand

    def axes(self, given: tree.Expr | None, rank: int, span: tree.Span) -> tuple[int, ...]:
        """Axes from 0, in order; all of them when none is given."""
        if given is None:
            return tuple(range(rank))
        items = given.items if isinstance(given, tree.List) else (given,)
        found = []
        for item in items:
            axis = affine.constant(self.index(item))
            if axis is None or not -rank <= axis < rank:
                what = f"Axis {'?' if axis is None else axis} does not exist: the tile has {rank} dimension(s)."
                raise self.scope.refuse("axis", span, what=what, remedy=f"Use 0 to {rank - 1}, or negative ones.")
            found.append(axis % rank)
        return tuple(sorted(set(found)))

    def flag(self, given: tree.Expr | None, span: tree.Span) -> bool:
        if given is None:
            return False
        if not isinstance(given, tree.Bool):
            raise self.scope.refuse("arguments", span, what="keepdims is true or false.", remedy="Write keepdims=true.")
        return given.value

    def dtype(self, expr: tree.Expr) -> DType:
        word = expr.id if isinstance(expr, tree.Name) else expr.value if isinstance(expr, tree.Str) else "?"
        if word not in _DTYPES:
            remedy = nearest(word, _DTYPES) or f"Use one of {', '.join(_DTYPES)}."
            raise self.scope.refuse("unknown-dtype", expr.span, name=word, remedy=remedy)
        return _DTYPES[word]

    def word(self, expr: tree.Expr | None, allowed: tuple[str, ...], what: str) -> str:
        if expr is None:
            return allowed[0]
        word = expr.value if isinstance(expr, tree.Str) else expr.id if isinstance(expr, tree.Name) else "?"
        if word not in allowed:
            remedy = nearest(word, allowed) or f"Use one of {', '.join(allowed)}."
            raise self.scope.refuse("arguments", expr.span, what=f"Unknown {what} '{word}'.", remedy=remedy)
        return word

    # -- kinds of operation

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
        bound = self.bind(expr, _REDUCTION)
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
        bound = self.bind(expr, _SCAN)
        value = self.tile(bound["x"], name)
        axis = self._one_axis(bound.get("axis"), value, expr)
        dtype = value.type.dtype.compute
        if name in ("cumsum", "cumprod"):
            dtype = accumulator(dtype)
        return Apply(Type(value.type.shape, dtype), name, (cast(value, dtype),), (("axis", axis),))

    def _one_axis(self, given: tree.Expr | None, value: Value, expr: tree.Call) -> int:
        axes = self.axes(given, len(value.type.shape), expr.span)
        if len(axes) != 1:
            what = f"'{expr.func}' of a tile of {len(value.type.shape)} dimensions needs one axis."
            raise self.scope.refuse("axis", expr.span, what=what, remedy="Write axis=.")
        return axes[0]

    def _associative(self, expr: tree.Call) -> Operand:
        first = expr.args[0] if expr.args else None
        combine = self.word(first, COMBINES, "combination") if first is not None else ""
        parameters = ("op", "a", "x", "axis?") if combine == "linear" else ("op", "x", "axis?")
        bound = self.bind(expr, parameters)
        values = [self.tile(bound[p], expr.func) for p in ("a", "x") if p in bound]
        for value in values[1:]:
            if not same_shape(value.type.shape, values[0].type.shape):
                what = f"The scan's tiles have shapes {show(values[0].type.shape)} and {show(value.type.shape)}."
                raise self.scope.refuse("shape-mismatch", expr.span, what=what, remedy="Give tiles of one shape.")
        axis = self._one_axis(bound.get("axis"), values[0], expr)
        dtype = common_of(values)
        attrs = (("axis", axis), ("combine", combine))
        return Apply(Type(values[0].type.shape, dtype), expr.func, tuple(cast(v, dtype) for v in values), attrs)

    def softmax(self, expr: tree.Call) -> Operand:
        """Expands to max, exp and sum; the exponentials get a tile of their own, for they are used twice."""
        if len(expr.args) < 2 and not any(k.name == "axis" for k in expr.keywords):
            what = "'softmax' needs its axis."
            raise self.scope.refuse("axis", expr.span, what=what, remedy="Write softmax(x, axis=-1).")
        bound = self.bind(expr, _SIGNATURES["softmax"])
        value = self.tile(bound["x"], "softmax")
        dtype = value.type.dtype.compute if value.type.dtype.is_float else DType.F32
        value = cast(value, dtype)
        shape = value.type.shape
        axes = self.axes(bound["axis"], len(shape), expr.span)
        kept = Type(tuple(num(1) if i in axes else d for i, d in enumerate(shape)), dtype)
        attrs = (("axes", axes), ("keepdims", True))
        shifted = Apply(value.type, "sub", (value, Apply(kept, "reduce_max", (value,), attrs)))
        exps = self.temporary("softmax_exp", Apply(value.type, "exp", (shifted,)), expr.span)
        return Apply(value.type, "div", (exps, Apply(kept, "reduce_sum", (exps,), attrs)))

    def temporary(self, name: str, value: Value, span: tree.Span) -> Read:
        """A tile for a value that is used twice, assigned before the statement being resolved."""
        tile = Tile(name, self.scope.uid(name), value.type.shape, value.type.dtype)
        self.scope.pending.append(Assign(tile, value, True, span))
        return Read(value.type, tile)

    def cast(self, expr: tree.Call) -> Operand:
        bound = self.bind(expr, _SIGNATURES["cast"])
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

    def dot(self, expr: tree.Call) -> Operand:
        bound = self.bind(expr, _SIGNATURES["dot"])
        a, b, result = self.matrix(bound["a"], bound["b"], "dot", expr.span)
        precision = self.word(bound.get("precision"), PRECISIONS, "precision")
        return Apply(result, "dot", (a, b), (("precision", precision),))

    def transpose(self, expr: tree.Call) -> Operand:
        bound = self.bind(expr, _SIGNATURES["transpose"])
        value = self.tile(bound["x"], "transpose")
        rank = len(value.type.shape)
        perm = (*range(rank - 2), rank - 1, rank - 2) if rank > 1 else (0,)
        if "perm" in bound:
            items = bound["perm"].items if isinstance(bound["perm"], tree.List) else (bound["perm"],)
            perm = tuple(self.axes(i, rank, expr.span)[0] for i in items)
        if sorted(perm) != list(range(rank)):
            what = f"{list(perm)} is not an order of {rank} dimensions."
            raise self.scope.refuse("axis", expr.span, what=what, remedy="Name each dimension once.")
        shape = tuple(value.type.shape[p] for p in perm)
        return Apply(Type(shape, value.type.dtype), "transpose", (value,), (("perm", perm),))

    def reshape(self, expr: tree.Call) -> Operand:
        bound = self.bind(expr, _SIGNATURES["reshape"])
        value = self.tile(bound["x"], "reshape")
        shape = self.shape(bound["shape"])
        if not affine.equal(_count(shape), _count(value.type.shape)):
            what = f"A tile of shape {show(value.type.shape)} has not as many elements as {show(shape)}."
            raise self.scope.refuse(
                "shape-mismatch", expr.span, what=what, remedy="Reshape keeps the number of elements."
            )
        return Apply(Type(shape, value.type.dtype), "reshape", (value,))

    def broadcast_to(self, expr: tree.Call) -> Operand:
        bound = self.bind(expr, _SIGNATURES["broadcast"])
        operand = self.operand(bound["x"])
        shape = self.shape(bound["shape"])
        both = broadcast(shape_of(operand), shape)
        if both is None or not same_shape(both, shape):
            what = f"A tile of shape {show(shape_of(operand))} does not broadcast to {show(shape)}."
            raise self.scope.refuse("shape-mismatch", expr.span, what=what, remedy="Align the shapes at the right.")
        value = typed(operand, default_dtype(operand))
        return Apply(Type(shape, value.type.dtype), "broadcast", (value,))

    def full(self, expr: tree.Call) -> Operand:
        bound = self.bind(expr, _SIGNATURES["full"])
        shape, operand = self.shape(bound["shape"]), self.operand(bound["value"])
        if shape_of(operand):
            what = "full takes a scalar value."
            raise self.scope.refuse("arguments", expr.span, what=what, remedy="Use broadcast for a tile.")

        def build(dtype: DType) -> Value:
            return Apply(Type(shape, dtype), "full", (typed(operand, dtype),))

        if "dtype" in bound:
            return build(self.dtype(bound["dtype"]))
        strong = strong_dtype(operand)
        if strong is not None:
            return build(strong)
        return Weak(not isinstance(operand, IntExpr) and isinstance(operand, Weak) and operand.is_float, build, shape)

    def arange(self, expr: tree.Call) -> Operand:
        bound = self.bind(expr, _SIGNATURES["arange"])
        first = self.index(bound["start"])
        start, extent = num(0), first
        if "stop" in bound:
            start, extent = first, affine.difference(self.index(bound["stop"]), first)
        self.fixed(extent, expr.span)
        return Apply(Type((extent,), DType.I64), "arange", (), (("start", start),))

    def concat(self, expr: tree.Call) -> Operand:
        given = expr.args[0].items if len(expr.args) == 1 and isinstance(expr.args[0], tree.List) else expr.args
        axis_expr = next((k.value for k in expr.keywords if k.name == "axis"), None)
        if len(given) < 2:
            what = "concat joins two or more tiles."
            raise self.scope.refuse("arguments", expr.span, what=what, remedy="Write concat(a, b, axis=0).")
        values = [self.tile(g, "concat") for g in given]
        axis = self._one_axis(axis_expr, values[0], expr)
        first = values[0].type.shape
        total = first[axis]
        dtype = values[0].type.dtype
        for value in values[1:]:
            shape = value.type.shape
            if len(shape) != len(first) or any(
                i != axis and not affine.equal(d, first[i]) for i, d in enumerate(shape)
            ):
                what = f"concat cannot join shapes {show(first)} and {show(shape)} along axis {axis}."
                raise self.scope.refuse("shape-mismatch", expr.span, what=what, remedy="Other dimensions must agree.")
            total = int_op("+", total, shape[axis])
            dtype = dtype if dtype is value.type.dtype else promote(dtype, value.type.dtype)
        result = (*first[:axis], affine.simplify(total), *first[axis + 1 :])
        return Apply(Type(result, dtype), "concat", tuple(cast(v, dtype) for v in values), (("axis", axis),))

    def where(self, expr: tree.Call) -> Operand:
        bound = self.bind(expr, _SIGNATURES["where"])
        return self.pointwise("where", [self.operand(bound[p]) for p in ("cond", "a", "b")], expr.span)

    def clamp(self, expr: tree.Call) -> Operand:
        bound = self.bind(expr, _SIGNATURES["clamp"])
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


def _count(shape: tuple[IntExpr, ...]) -> IntExpr:
    total = num(1)
    for extent in shape:
        total = int_op("*", total, extent)
    return total


_HANDLERS: Mapping[str, Callable[[CallReader, tree.Call], Operand]] = {
    "cast": CallReader.cast,
    "softmax": CallReader.softmax,
    "dot": CallReader.dot,
    "transpose": CallReader.transpose,
    "reshape": CallReader.reshape,
    "broadcast": CallReader.broadcast_to,
    "full": CallReader.full,
    "arange": CallReader.arange,
    "concat": CallReader.concat,
    "where": CallReader.where,
    "clamp": CallReader.clamp,
}
