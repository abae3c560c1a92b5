"""Checks of reductions: padding with another identity, and loops whose split would change more than rounding."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kernellab.operations.sketch import OPS, OpKind
from kernellab.records import Diagnostic
from kernellab.sketch.check.fold import fold
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
class _Edge:
    """What a value holds past a tensor's edge.

    ``pads`` has the value along each padded axis (None: unknown), ``source`` the tile that it comes from. ``constant``
    is the value everywhere, if it is one number. ``loaded``: the pads are what a load put there."""

    pads: Mapping[int, float | None] = field(default_factory=dict)
    source: str = ""
    constant: float | None = None
    loaded: bool = False


#: a value that is never padded
_PLAIN = _Edge()


class _Padding:
    """Follows the values in the padded part of every tile through one kernel, in order."""

    def __init__(self, constexpr: Mapping[str, int | float], diagnostics: list[Diagnostic]) -> None:
        self.constexpr = constexpr
        self.diagnostics = diagnostics
        self.tiles: dict[str, _Edge] = {}
        self.span = Span(1, 1, 1, 1)
        self.loops: tuple[Loop, ...] = ()
        self.noted: set[tuple[int, int, str]] = set()

    def body(self, body: tuple[Statement, ...], loops: tuple[Loop, ...]) -> None:
        for stmt in body:
            self.span, self.loops = stmt.span, loops
            _RULES.get(type(stmt), _Padding.check_values)(self, stmt)
            for inner in stmt.bodies:
                self.body(inner, (*loops, stmt) if isinstance(stmt, Loop) else loops)

    def check_values(self, stmt: Statement) -> None:
        """Check the values of other statements: a stored value may contain a reduction."""
        for value in stmt.values:
            self.edge(value)

    def alloc(self, stmt: Alloc) -> None:
        self.tiles[stmt.tile.uid] = _Edge(constant=0.0) if stmt.init_zero else _PLAIN

    def load(self, stmt: Load) -> None:
        self.tiles[stmt.tile.uid] = self._load(stmt, self.loops)

    def assign(self, stmt: Assign) -> None:
        edge = self.edge(stmt.value)
        self.tiles[stmt.tile.uid] = _broadcast(edge, len(stmt.value.type.shape), stmt.tile.rank)

    def gemm(self, stmt: Gemm) -> None:
        self._product(stmt.a, stmt.b)
        self.tiles[stmt.acc.uid] = _PLAIN

    def multi_assign(self, stmt: MultiAssign) -> None:
        for tile in stmt.tiles:
            self.tiles[tile.uid] = _PLAIN
        if OPS[stmt.op].kind is OpKind.SORT:
            self._order(stmt)
            return
        axes = dict(stmt.attrs).get("axes", ())
        self._reduce(stmt.op, self.edge(stmt.args[0]), axes)  # type: ignore[arg-type]

    def _order(self, stmt: MultiAssign) -> None:
        """Report padding that a sort would put before elements of the tensor."""
        attrs = dict(stmt.attrs)
        last = -math.inf if attrs["descending"] else math.inf
        edge = self.edge(stmt.args[0])
        pad = edge.pads.get(attrs["axis"], last)  # type: ignore[call-overload]
        if pad is None or not (math.isnan(pad) or pad == last):
            self._differs(edge, pad, stmt.op, last)

    def scatter(self, stmt: Scatter) -> None:
        """Report an index whose padding is an element of the tensor: padded values would be written there."""
        self.edge(stmt.value)
        for value, item in zip(stmt.index, stmt.items, strict=True):
            edge = self.edge(value)
            wrong = [p for p in edge.pads.values() if p is None or not (p < 0 or math.isnan(p))]
            if wrong and item is None and not self._masked_elsewhere(stmt, edge):
                op = "atomic_add" if stmt.add else "scatter"
                self._note("scatter-pad", tile=edge.source, pad=_pad_words(wrong[0]), op=op, tensor=stmt.tensor.name)

    def _masked_elsewhere(self, stmt: Scatter, edge: _Edge) -> bool:
        """Is another index outside the tensor at the same padded places?"""
        axes = set(edge.pads)
        for value in stmt.index:
            other = _broadcast(self.edge(value), len(value.type.shape), len(stmt.shape)).pads
            axes -= {a for a, p in other.items() if p is not None and (p < 0 or math.isnan(p))}
        return not axes

    def _gather(self, value: Apply) -> _Edge:
        """Return the edge of a gather: if an index is padded with a number outside the tensor, the gather's pad; else
        unknown."""
        tensor, items, pad = (value.attr(name) for name in ("tensor", "items", "pad"))
        assert isinstance(tensor, Tensor) and isinstance(items, tuple) and isinstance(pad, float)
        rank = len(value.type.shape)
        pads: dict[int, float | None] = {}
        source = ""
        for arg, item, dim in zip(value.args, items, tensor.shape, strict=True):
            edge = _broadcast(self.edge(arg), len(arg.type.shape), rank)
            for axis, inner in edge.pads.items():
                outside = inner is not None and (inner < 0 or math.isnan(inner))
                pads[axis] = pad if outside or pads.get(axis, 0.5) == pad else None
                source = source or edge.source
            if isinstance(item, Range) and not self._inside(item, dim, self.loops):
                axis = rank - len(arg.type.shape)
                pads[axis] = pad
        return _Edge(pads, source or tensor.name, loaded=True)

    def _load(self, stmt: Load, loops: tuple[Loop, ...]) -> _Edge:
        ranges = [
            (item, dim)
            for item, dim in zip(stmt.region.index, stmt.region.tensor.shape, strict=True)
            if isinstance(item, Range)
        ]
        padded = {axis: stmt.pad for axis, (item, dim) in enumerate(ranges) if not self._inside(item, dim, loops)}
        return _Edge(padded, stmt.tile.name, loaded=True)

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

    def edge(self, value: Value) -> _Edge:
        match value:
            case Read():
                return self.tiles.get(value.tile.uid, _PLAIN)
            case Const():
                return _Edge(constant=float(value.value))
            case Param():
                number = self.constexpr.get(value.name)
                return _Edge(constant=None if number is None else float(number))
            case Apply():
                return self._applied(value)
        return _PLAIN

    def _applied(self, value: Apply) -> _Edge:
        op = OPS.get(value.op)
        if op is None:
            for arg in value.args:
                self.edge(arg)
            return _PLAIN
        if op.kind in (OpKind.POINTWISE, OpKind.COMPARE):
            return self._pointwise(value)
        if op.kind is OpKind.MATRIX:
            self._product(value.args[0], value.args[1])
            return _PLAIN
        if value.op == "gather":
            return self._gather(value)
        operands = [self.edge(a) for a in value.args]
        if op.kind is OpKind.REDUCE:
            return self._reduced(value, operands[0])
        if op.kind is OpKind.SCAN:
            axis = value.attr("axis")
            name = {"add": "cumsum", "mul": "cumprod", "max": "cummax", "min": "cummin"}
            self._reduce(name.get(str(value.attr("combine")), value.op), operands[0], (axis,))  # type: ignore[arg-type]
            return _PLAIN
        return self._shaped(value, operands)

    def _pointwise(self, value: Apply) -> _Edge:
        operands = [self.edge(a) for a in value.args]
        if value.op == "cast":
            return operands[0]
        if not any(operand.pads for operand in operands):
            if any(operand.constant is None for operand in operands):
                return _PLAIN
            return _Edge(constant=fold(value.op, [operand.constant for operand in operands]))
        rank = len(value.type.shape)
        operands = [_broadcast(o, len(a.type.shape), rank) for o, a in zip(operands, value.args, strict=True)]
        axes = sorted({axis for operand in operands for axis in operand.pads})
        pads = {a: fold(value.op, [operand.pads.get(a, operand.constant) for operand in operands]) for a in axes}
        return _Edge(pads, next((operand.source for operand in operands if operand.pads), ""))

    def _reduced(self, value: Apply, edge: _Edge) -> _Edge:
        axes = value.attr("axes")
        assert isinstance(axes, tuple)
        self._reduce(value.op, edge, axes, value.args[0].type.dtype)
        if value.op == "softmax":
            return _PLAIN
        kept: dict[int, float | None] = {}
        position = 0
        for axis in range(len(value.args[0].type.shape)):
            if axis in axes:
                position += 1 if value.attr("keepdims") else 0
                continue
            if axis in edge.pads:
                kept[position] = None
            position += 1
        return _Edge(kept, edge.source)

    def _shaped(self, value: Apply, args: list[_Edge]) -> _Edge:
        if value.op == "full":
            return _Edge(constant=args[0].constant)
        if value.op == "broadcast":
            return _broadcast(args[0], len(value.args[0].type.shape), len(value.type.shape))
        if value.op == "newaxis":
            new = value.attr("axes")
            assert isinstance(new, tuple)
            places = [i for i in range(len(value.type.shape)) if i not in new]
            return _Edge({places[a]: p for a, p in args[0].pads.items()}, args[0].source, args[0].constant)
        if value.op == "transpose":
            perm = value.attr("perm")
            assert isinstance(perm, tuple)
            return _Edge({perm.index(a): p for a, p in args[0].pads.items()}, args[0].source, args[0].constant)
        return _PLAIN

    def _product(self, a: Value, b: Value) -> None:
        left, right = self.edge(a), self.edge(b)
        left_axis, right_axis = len(a.type.shape) - 1, len(b.type.shape) - 2
        pads = [edge.pads[axis] for edge, axis in ((left, left_axis), (right, right_axis)) if axis in edge.pads]
        numbers = [p for p in pads if p is not None]
        # 0 times a finite value adds nothing
        harmless = any(math.isnan(p) for p in numbers) or (0.0 in numbers and not any(math.isinf(p) for p in numbers))
        if pads and not harmless:
            self._differs(left if left_axis in left.pads else right, pads[0], "gemm", 0.0)

    def _reduce(self, op: str, edge: _Edge, axes: tuple[int, ...], dtype: DType | None = None) -> None:
        """Report padding along ``axes`` that is not the identity of ``op``."""
        reached = [edge.pads[a] for a in axes if a in edge.pads]
        if not reached:
            return
        if op in _AVERAGES:
            self._note("pad-mean", tile=edge.source, op=op)
            return
        identity = OPS[op].identity
        if identity is None:
            return
        if identity == -math.inf and dtype in (DType.U8, DType.BOOL):
            identity = 0.0  # the smallest number of the dtype
        wrong = [p for p in reached if p is None or not (math.isnan(p) or p == identity)]
        if wrong:
            self._differs(edge, wrong[0], op, identity)

    def _differs(self, edge: _Edge, pad: float | None, op: str, identity: float) -> None:
        """Report a tile whose padded part holds ``pad`` where ``op`` needs ``identity``."""
        remedy = f"Load it with pad={_pad_words(identity)}, or mask it with where."
        if not edge.loaded:  # another pad at the load is what operations make of it
            remedy = f"Mask it with where before {op}, or load with a pad that has become {_pad_words(identity)} there."
        self._note(
            "pad-identity", tile=edge.source, pad=_pad_words(pad), op=op, identity=_pad_words(identity), remedy=remedy,
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
    MultiAssign: _Padding.multi_assign,
    Scatter: _Padding.scatter,
}


def _broadcast(edge: _Edge, rank: int, into: int) -> _Edge:
    """Return the edge of a value of ``rank`` broadcast to rank ``into``: axes count from the right."""
    if rank == into or not edge.pads:
        return edge
    return _Edge({a + into - rank: p for a, p in edge.pads.items() if a + into - rank >= 0}, edge.source)


def _pad_words(pad: float | None) -> str:
    return "values that are not known" if pad is None else f"{pad:g}"
