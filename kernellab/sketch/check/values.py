"""Checks of reductions: padding with another identity, and loops whose split would change more than rounding."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kernellab.operations.sketch import OPS, OpKind
from kernellab.records import Diagnostic
from kernellab.sketch.check.split import cannot_split
from kernellab.sketch.program import affine
from kernellab.sketch.program.access import at_least, substitute
from kernellab.sketch.program.ints import IntExpr, IntKind, int_op, num
from kernellab.sketch.program.program import (
    Alloc,
    Apply,
    Assign,
    Const,
    DType,
    Gemm,
    Load,
    Loop,
    MultiAssign,
    Param,
    Program,
    Range,
    Read,
    Scatter,
    Statement,
    Tensor,
    Value,
)
from kernellab.sketch.program.walk import statements
from kernellab.sketch.syntax.messages import diagnostic_at
from kernellab.sketch.syntax.tree import Span

_AVERAGES = frozenset(("reduce_mean", "welford"))


def check_values(program: Program, constexpr: Mapping[str, int | float]) -> list[Diagnostic]:
    """Return diagnostics of padding and ``split`` in every kernel of ``program``."""
    diagnostics: list[Diagnostic] = []
    for kernel in program.kernels:
        _Padding(constexpr, diagnostics).body(kernel.body, ())
        for stmt in statements(kernel.body):
            if isinstance(stmt, Loop) and stmt.hints.split is not None:
                what = cannot_split(stmt)
                if what:
                    diagnostics.append(diagnostic_at("split", stmt.span, var=stmt.var, what=what))
    return diagnostics


@dataclass(frozen=True)
class _Lanes:
    """The values past the edge along each padded axis (None: unknown), the tile that they come from, and a constant
    value. ``loaded``: they are what the load put there."""

    pads: Mapping[int, float | None] = field(default_factory=dict)
    source: str = ""
    constant: float | None = None
    loaded: bool = False


_PLAIN = _Lanes()
#: the value of a padded part that a mask has set
_MASKED = math.nan


class _Padding:
    """Follows the values in the padded part of every tile through one kernel, in order."""

    def __init__(self, constexpr: Mapping[str, int | float], diagnostics: list[Diagnostic]) -> None:
        self.constexpr = constexpr
        self.diagnostics = diagnostics
        self.tiles: dict[str, _Lanes] = {}
        self.span = Span(1, 1, 1, 1)
        self.loops: tuple[Loop, ...] = ()
        self.noted: set[tuple[int, int, str]] = set()

    def body(self, body: tuple[Statement, ...], loops: tuple[Loop, ...]) -> None:
        for stmt in body:
            self.span, self.loops = stmt.span, loops
            _RULES.get(type(stmt), _Padding.others)(self, stmt)
            for inner in stmt.bodies:
                self.body(inner, (*loops, stmt) if isinstance(stmt, Loop) else loops)

    def others(self, stmt: Statement) -> None:
        """Check the values of other statements: a stored value may contain a reduction."""
        for value in stmt.values:
            self.lanes(value)

    def alloc(self, stmt: Alloc) -> None:
        self.tiles[stmt.tile.uid] = _Lanes(constant=0.0) if stmt.init_zero else _PLAIN

    def load(self, stmt: Load) -> None:
        self.tiles[stmt.tile.uid] = self._load(stmt, self.loops)

    def assign(self, stmt: Assign) -> None:
        lanes = self.lanes(stmt.value)
        self.tiles[stmt.tile.uid] = _aligned(lanes, len(stmt.value.type.shape), stmt.tile.rank)

    def gemm(self, stmt: Gemm) -> None:
        self._product(stmt.a, stmt.b)
        self.tiles[stmt.acc.uid] = _PLAIN

    def several(self, stmt: MultiAssign) -> None:
        for tile in stmt.tiles:
            self.tiles[tile.uid] = _PLAIN
        if OPS[stmt.op].kind is OpKind.SORT:
            self._order(stmt)
            return
        axes = dict(stmt.attrs).get("axes", ())
        self._reduce(stmt.op, self.lanes(stmt.args[0]), axes)  # type: ignore[arg-type]

    def _order(self, stmt: MultiAssign) -> None:
        """Report padding that a sort would put before elements of the tensor."""
        attrs = dict(stmt.attrs)
        last = -math.inf if attrs["descending"] else math.inf
        lanes = self.lanes(stmt.args[0])
        pad = lanes.pads.get(attrs["axis"], last)  # type: ignore[call-overload]
        if pad is None or not (math.isnan(pad) or pad == last):
            self._differs(lanes, pad, stmt.op, last)

    def scatter(self, stmt: Scatter) -> None:
        """Report an index whose padding is an element of the tensor: padded values would be written there."""
        self.lanes(stmt.value)
        for value, item in zip(stmt.index, stmt.items, strict=True):
            lanes = self.lanes(value)
            wrong = [p for p in lanes.pads.values() if p is None or not (p < 0 or math.isnan(p))]
            if wrong and item is None and not self._masked_elsewhere(stmt, lanes):
                op = "atomic_add" if stmt.add else "scatter"
                self._note("scatter-pad", tile=lanes.source, pad=_word(wrong[0]), op=op, tensor=stmt.tensor.name)

    def _masked_elsewhere(self, stmt: Scatter, lanes: _Lanes) -> bool:
        """Is another index outside the tensor at the same padded places?"""
        axes = set(lanes.pads)
        for value in stmt.index:
            other = _aligned(self.lanes(value), len(value.type.shape), len(stmt.shape)).pads
            axes -= {a for a, p in other.items() if p is not None and (p < 0 or math.isnan(p))}
        return not axes

    def _gather(self, value: Apply) -> _Lanes:
        """Return the lanes of a gather: if an index is padded with a number outside the tensor, the gather's pad; else
        unknown."""
        tensor, items, pad = (value.attr(name) for name in ("tensor", "items", "pad"))
        assert isinstance(tensor, Tensor) and isinstance(items, tuple) and isinstance(pad, float)
        rank = len(value.type.shape)
        pads: dict[int, float | None] = {}
        source = ""
        for arg, item, dim in zip(value.args, items, tensor.shape, strict=True):
            lanes = _aligned(self.lanes(arg), len(arg.type.shape), rank)
            for axis, inner in lanes.pads.items():
                outside = inner is not None and (inner < 0 or math.isnan(inner))
                pads[axis] = pad if outside or pads.get(axis, 0.5) == pad else None
                source = source or lanes.source
            if isinstance(item, Range) and not self._inside(item, dim, self.loops):
                axis = rank - len(arg.type.shape)
                pads[axis] = pad
        return _Lanes(pads, source or tensor.name, loaded=True)

    def _load(self, stmt: Load, loops: tuple[Loop, ...]) -> _Lanes:
        ranges = [
            (item, dim)
            for item, dim in zip(stmt.region.index, stmt.region.tensor.shape, strict=True)
            if isinstance(item, Range)
        ]
        padded = {axis: stmt.pad for axis, (item, dim) in enumerate(ranges) if not self._inside(item, dim, loops)}
        return _Lanes(padded, stmt.tile.name, loaded=True)

    def _inside(self, item: Range, dim: IntExpr, loops: tuple[Loop, ...]) -> bool:
        """Is the range proved to stay inside ``dim`` in every iteration?"""
        if item.start.kind is IntKind.NUM and item.start.value == 0 and affine.equal(item.extent, dim):
            return True
        # an extent of constexprs alone is not proved to be inside a symbol's dimension
        if any(n not in self.constexpr for n in dim.names() - item.extent.names() - item.start.names()):
            return False
        last = item.start
        first = item.start
        for loop in reversed(loops):
            if loop.var in last.loop_vars():
                trips = int_op("cdiv", int_op("-", loop.stop, loop.start), loop.step)
                end = int_op("+", loop.start, int_op("*", int_op("-", trips, num(1)), loop.step))
                last = substitute(last, loop.var, end)
                first = substitute(first, loop.var, loop.start)
        stop = int_op("+", last, int_op("*", item.extent, item.step))
        if at_least(first, num(0)) and at_least(dim, stop):
            return True
        constants = {n: int(v) for n, v in self.constexpr.items()}
        try:
            return first.evaluate(constants) >= 0 and stop.evaluate(constants) <= dim.evaluate(constants)
        except (KeyError, ZeroDivisionError):
            return False

    # -- values

    def lanes(self, value: Value) -> _Lanes:
        match value:
            case Read():
                return self.tiles.get(value.tile.uid, _PLAIN)
            case Const():
                return _Lanes(constant=float(value.value))
            case Param():
                number = self.constexpr.get(value.name)
                return _Lanes(constant=None if number is None else float(number))
            case Apply():
                return self._applied(value)
        return _PLAIN

    def _applied(self, value: Apply) -> _Lanes:
        op = OPS.get(value.op)
        if op is None:
            for arg in value.args:
                self.lanes(arg)
            return _PLAIN
        if op.kind in (OpKind.POINTWISE, OpKind.COMPARE):
            return self._pointwise(value)
        if op.kind is OpKind.MATRIX:
            self._product(value.args[0], value.args[1])
            return _PLAIN
        if value.op == "gather":
            return self._gather(value)
        operands = [self.lanes(a) for a in value.args]
        if op.kind is OpKind.REDUCE:
            return self._reduced(value, operands[0])
        if op.kind is OpKind.SCAN:
            axis = value.attr("axis")
            name = {"add": "cumsum", "mul": "cumprod", "max": "cummax", "min": "cummin"}
            self._reduce(name.get(str(value.attr("combine")), value.op), operands[0], (axis,))  # type: ignore[arg-type]
            return _PLAIN
        return self._shaped(value, operands)

    def _pointwise(self, value: Apply) -> _Lanes:
        operands = [self.lanes(a) for a in value.args]
        if value.op == "cast":
            return operands[0]
        if not any(g.pads for g in operands):
            if any(g.constant is None for g in operands):
                return _PLAIN
            return _Lanes(constant=_fold(value.op, [g.constant for g in operands]))
        rank = len(value.type.shape)
        operands = [_aligned(g, len(a.type.shape), rank) for g, a in zip(operands, value.args, strict=True)]
        axes = sorted({axis for lanes in operands for axis in lanes.pads})
        pads = {a: _fold(value.op, [g.pads.get(a, g.constant) for g in operands]) for a in axes}
        return _Lanes(pads, next((g.source for g in operands if g.pads), ""))

    def _reduced(self, value: Apply, lanes: _Lanes) -> _Lanes:
        axes = value.attr("axes")
        assert isinstance(axes, tuple)
        self._reduce(value.op, lanes, axes, value.args[0].type.dtype)
        if value.op == "softmax":
            return _PLAIN
        kept: dict[int, float | None] = {}
        position = 0
        for axis in range(len(value.args[0].type.shape)):
            if axis in axes:
                position += 1 if value.attr("keepdims") else 0
                continue
            if axis in lanes.pads:
                kept[position] = None
            position += 1
        return _Lanes(kept, lanes.source)

    def _shaped(self, value: Apply, args: list[_Lanes]) -> _Lanes:
        if value.op == "full":
            return _Lanes(constant=args[0].constant)
        if value.op == "broadcast":
            return _aligned(args[0], len(value.args[0].type.shape), len(value.type.shape))
        if value.op == "newaxis":
            new = value.attr("axes")
            assert isinstance(new, tuple)
            places = [i for i in range(len(value.type.shape)) if i not in new]
            return _Lanes({places[a]: p for a, p in args[0].pads.items()}, args[0].source, args[0].constant)
        if value.op == "transpose":
            perm = value.attr("perm")
            assert isinstance(perm, tuple)
            return _Lanes({perm.index(a): p for a, p in args[0].pads.items()}, args[0].source, args[0].constant)
        return _PLAIN

    def _product(self, a: Value, b: Value) -> None:
        left, right = self.lanes(a), self.lanes(b)
        x, y = len(a.type.shape) - 1, len(b.type.shape) - 2
        pads = [lanes.pads[axis] for lanes, axis in ((left, x), (right, y)) if axis in lanes.pads]
        numbers = [p for p in pads if p is not None]
        harmless = any(math.isnan(p) for p in numbers) or (0.0 in numbers and not any(math.isinf(p) for p in numbers))
        if pads and not harmless:
            self._differs(left if x in left.pads else right, pads[0], "gemm", 0.0)

    def _reduce(self, op: str, lanes: _Lanes, axes: tuple[int, ...], dtype: DType | None = None) -> None:
        """Report padding along ``axes`` that is not the identity of ``op``."""
        reached = [lanes.pads[a] for a in axes if a in lanes.pads]
        if not reached:
            return
        if op in _AVERAGES:
            self._note("pad-mean", tile=lanes.source, op=op)
            return
        identity = OPS[op].identity
        if identity is None:
            return
        if identity == -math.inf and dtype in (DType.U8, DType.BOOL):
            identity = 0.0  # the smallest number of the dtype
        wrong = [p for p in reached if p is None or not (math.isnan(p) or p == identity)]
        if wrong:
            self._differs(lanes, wrong[0], op, identity)

    def _differs(self, lanes: _Lanes, pad: float | None, op: str, identity: float) -> None:
        """Report a tile whose padded part holds ``pad`` where ``op`` needs ``identity``."""
        remedy = f"Load it with pad={_word(identity)}, or mask it with where."
        if not lanes.loaded:  # another pad at the load is what operations make of it
            remedy = f"Mask it with where before {op}, or load with a pad that has become {_word(identity)} there."
        self._note(
            "pad-identity", tile=lanes.source, pad=_word(pad), op=op, identity=_word(identity), remedy=remedy,
        )  # fmt: skip

    def _note(self, rule: str, **fields: object) -> None:
        key = (self.span.line, self.span.col, rule)
        if key not in self.noted:
            self.noted.add(key)
            self.diagnostics.append(diagnostic_at(rule, self.span, **fields))


_RULES: dict[type, Callable[[_Padding, Any], None]] = {
    Alloc: _Padding.alloc,
    Load: _Padding.load,
    Assign: _Padding.assign,
    Gemm: _Padding.gemm,
    MultiAssign: _Padding.several,
    Scatter: _Padding.scatter,
}


def _aligned(lanes: _Lanes, rank: int, into: int) -> _Lanes:
    """Return ``lanes`` of a value of ``rank`` broadcast to rank ``into``: axes count from the right."""
    if rank == into or not lanes.pads:
        return lanes
    return _Lanes({a + into - rank: p for a, p in lanes.pads.items() if a + into - rank >= 0}, lanes.source)


def _word(pad: float | None) -> str:
    return "values that are not known" if pad is None else f"{pad:g}"


def _fold(op: str, values: list[float | None]) -> float | None:
    """Return ``op`` on constants; None if an unknown (finite) operand decides, masked if the author masks."""
    if op == "where":
        # an unknown condition is a mask: the author handles the edge
        return _MASKED if values[0] is None else values[1] if values[0] else values[2]
    if any(v is not None and math.isnan(v) for v in values):
        return _MASKED
    if op == "mul" and 0.0 in values and all(v is None or math.isfinite(v) for v in values):
        return 0.0
    if op in ("add", "sub") and None in values:
        infinite = [v if i == 0 or op == "add" else -v for i, v in enumerate(values) if v is not None and math.isinf(v)]
        return infinite[0] if len(infinite) == 1 else None
    if op == "div" and values[0] == 0.0 and values[1] is None:
        return 0.0
    if op == "div" and values[1] is None and values[0] is not None and math.isinf(values[0]):
        return values[0]
    if op == "max" and math.inf in values:
        return math.inf
    if op == "min" and -math.inf in values:
        return -math.inf
    numbers = [v for v in values if v is not None]
    function = _FOLDS.get(op)
    if function is None or len(numbers) != len(values):
        return None
    try:
        result = function(*numbers)
    except (ArithmeticError, ValueError):
        return None
    return None if math.isnan(result) else result


_FOLDS: Mapping[str, Callable[..., float]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "pow": lambda a, b: a**b,
    "neg": lambda a: -a,
    "round_tf32": lambda a: a,
    "abs": abs,
    "isnan": lambda a: 0.0,
    "min": min,
    "max": max,
    "relu": lambda a: max(a, 0.0),
    "exp": lambda a: math.exp(a),
    "exp2": lambda a: 2.0**a,
    "log": math.log,
    "log1p": math.log1p,
    "expm1": math.expm1,
    "sqrt": math.sqrt,
    "rsqrt": lambda a: 1 / math.sqrt(a),
    "sin": math.sin,
    "cos": math.cos,
    "tanh": math.tanh,
    "erf": math.erf,
    "sign": lambda a: math.copysign(1.0, a) if a else 0.0,
    "fma": lambda a, b, c: a * b + c,
    "clamp": lambda a, low, high: min(max(a, low), high),
    "sigmoid": lambda a: 1 / (1 + math.exp(-a)) if a > -700 else 0.0,
    "silu": lambda a: 0.0 if a == 0 else a / (1 + math.exp(-a)),
    "gelu": lambda a: 0.5 * a * (1 + math.erf(a / math.sqrt(2))),
    "gelu_tanh": lambda a: 0.0 if a == 0 else math.nan,
    "bit_and": lambda a, b: float(int(a) & int(b)),
    "bit_or": lambda a, b: float(int(a) | int(b)),
    "bit_xor": lambda a, b: float(int(a) ^ int(b)),
    "logical_and": lambda a, b: float(bool(a and b)),
    "logical_or": lambda a, b: float(bool(a or b)),
    "logical_not": lambda a: float(not a),
    "lt": lambda a, b: float(a < b),
    "le": lambda a, b: float(a <= b),
    "gt": lambda a, b: float(a > b),
    "ge": lambda a, b: float(a >= b),
    "eq": lambda a, b: float(a == b),
    "ne": lambda a, b: float(a != b),
}
