"""Counts the work of one kernel: a tree of loops with the FLOPs, traffic and footprint of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import prod
from typing import NamedTuple

from kernellab.operations.sketch import OPS, OpKind
from kernellab.sketch.cost.memory import LINE_BYTES, Traffic, by_tensor, footprint, picks
from kernellab.sketch.program.ints import elements
from kernellab.sketch.program.library import LIBRARY
from kernellab.sketch.program.program import (
    FLOAT8,
    Apply,
    AtomicAdd,
    DType,
    Gemm,
    If,
    Kernel,
    LibraryCall,
    Load,
    Loop,
    MultiAssign,
    Point,
    Range,
    Region,
    Scatter,
    Statement,
    Store,
    Value,
    whole,
)
from kernellab.sketch.program.walk import statements, subvalues

#: sampled iterations of a loop on which something inside depends; chosen, not measured, as the next two
_SAMPLED_ITERATIONS = 16
#: sampled combinations of loop variables for the average of a clipped extent
_COMBINATIONS = 256
#: most loops of a region whose corners are evaluated, two to the power of this
_MOST_CORNERED = 4


Env = dict[str, int]
Move = Load | Store | AtomicAdd


@dataclass(frozen=True)
class Access:
    """One load or store statement: the bytes inside the tensor that it moves in the whole kernel."""

    tensor: str
    line: int
    bytes: float
    is_write: bool


@dataclass
class Node:
    """One loop (or the kernel itself) with everything inside; counts are those of the whole kernel."""

    label: str
    line: int
    parallel: bool
    iterations: float = 0.0
    flops: dict[str, float] = field(default_factory=dict)
    bytes_total: float = 0.0
    footprint: int = 0
    children: dict[int, Node] = field(default_factory=dict)


@dataclass(frozen=True)
class Model:
    """Sums over one kernel; ``unique`` and ``slow`` are bytes by tensor, reads and writes added."""

    kernel: str
    root: Node
    accesses: tuple[Access, ...]
    unique: Mapping[str, float]
    slow: Mapping[str, float]
    parallelism: float
    #: FLOPs by operation and line
    operations: Mapping[tuple[str, int], float]
    #: elements that parallel iterations add at shared places
    atomics: float = 0.0


def build(kernel: Kernel, names: Mapping[str, int], cache_bytes: int) -> Model:
    """Return the model of ``kernel`` with symbols and constexprs ``names`` and a last cache of ``cache_bytes``."""
    env = dict(names)
    counter = _Counter(_control_variables(kernel.body))
    root = Node(kernel.name, kernel.span.line, False, 1.0, footprint=footprint(kernel.body, env))
    counter.visit(kernel.body, env, {}, 1.0, [root])
    traffic = Traffic(cache_bytes)
    parallelism = _parallelism(kernel.body, env)
    return Model(
        kernel=kernel.name,
        root=root,
        accesses=tuple(counter.accesses.values()),
        unique=by_tensor(traffic.unique(kernel.body, env)),
        slow=by_tensor(traffic.block(kernel.body, env)),
        parallelism=parallelism,
        operations=counter.operations,
        atomics=counter.added if parallelism > 1 else 0.0,
    )


class _Counter:
    """Counts statements with a representative iteration of each loop, and several if control depends on it."""

    def __init__(self, controls: frozenset[str]) -> None:
        self.controls = controls
        self.accesses: dict[int, Access] = {}
        #: FLOPs by operation and line
        self.operations: dict[tuple[str, int], float] = {}
        #: elements that are added to a tensor
        self.added = 0.0

    def visit(
        self, body: Sequence[Statement], env: Env, ranges: Mapping[str, Sequence[int]], times: float, path: list[Node]
    ) -> None:
        """Add ``body``, executed ``times`` in total, to every node of ``path``."""
        for stmt in body:
            if isinstance(stmt, Loop):
                self._loop(stmt, env, ranges, times, path)
            elif isinstance(stmt, If):
                self.visit(stmt.then if stmt.cond.evaluate(env) else stmt.orelse, env, ranges, times, path)
            elif isinstance(stmt, (Load, Store, AtomicAdd)):
                self._move(stmt, env, ranges, times, path)
            elif isinstance(stmt, LibraryCall):
                for operand in stmt.operands:
                    count = times * elements(operand.shape, env)
                    self._count(id(operand), stmt, operand.region, count, False, True, path)
                count = times * elements(stmt.out.shape, env)
                self._count(id(stmt), stmt, whole(stmt.out), count, True, False, path)
            if isinstance(stmt, Scatter) and stmt.add:
                self.added += times * elements(stmt.shape, env)
            for pick in picks(stmt):
                count = times * elements(pick.shape, env)
                self._count(id(stmt), stmt, pick.region, count, pick.is_write, pick.is_read, path)
            for operation in operations_of(stmt, env):
                key, flops = (operation.name, stmt.span.line), times * operation.flops
                self.operations[key] = self.operations.get(key, 0.0) + flops
                for node in path:
                    node.flops[operation.precision] = node.flops.get(operation.precision, 0.0) + flops

    def _loop(self, loop: Loop, env: Env, ranges: Mapping[str, Sequence[int]], times: float, path: list[Node]) -> None:
        turns = range(*(e.evaluate(env) for e in (loop.start, loop.stop, loop.step)))
        node = path[-1].children.get(id(loop))
        if node is None:
            label = f"{loop.var} in range({loop.start}, {loop.stop}, {loop.step})"
            node = Node(label, loop.span.line, loop.hints.parallel)
            path[-1].children[id(loop)] = node
        node.iterations += times * len(turns)
        if not turns:
            return
        inner = {**env, loop.var: turns[0]}
        node.footprint = max(node.footprint, footprint(loop.body, inner))
        if loop.var not in self.controls:
            self.visit(loop.body, inner, {**ranges, loop.var: turns}, times * len(turns), [*path, node])
            return
        for i, weight in _weighted(turns, _SAMPLED_ITERATIONS):
            # a variable that is fixed here is not averaged over elsewhere
            seen = {**ranges, loop.var: (i,)}
            self.visit(loop.body, {**env, loop.var: i}, seen, times * weight, [*path, node])

    def _move(self, stmt: Move, env: Env, ranges: Mapping[str, Sequence[int]], times: float, path: list[Node]) -> None:
        region = stmt.region
        touched = 1.0
        for dim, item in enumerate(region.index):
            touched *= _average_inside(item, region.tensor.shape[dim].evaluate(env), env, ranges)
        if isinstance(stmt, AtomicAdd):
            self.added += times * touched
        last = region.index[-1] if region.index else None
        if isinstance(last, Range):
            # skipped elements of a line are moved too
            touched *= max(1, min(last.step.evaluate(env), LINE_BYTES // region.tensor.dtype.bytes))
        written = not isinstance(stmt, Load)
        self._count(id(stmt), stmt, region, times * touched, written, not isinstance(stmt, Store), path)

    def _count(
        self, key: int, stmt: Statement, region: Region, count: float, written: bool, read: bool, path: list[Node]
    ) -> None:
        moved = count * region.tensor.dtype.bytes * (int(written) + int(read))
        for node in path:
            node.bytes_total += moved
        before = self.accesses.get(key)
        total = moved + (before.bytes if before else 0.0)
        self.accesses[key] = Access(region.tensor.name, stmt.span.line, total, written)


def _average_inside(item: Point | Range, size: int, env: Env, ranges: Mapping[str, Sequence[int]]) -> float:
    """Return the elements of one dimension of a region inside the tensor, averaged over the loops that move it."""
    exprs = (item.at,) if isinstance(item, Point) else (item.start, item.step)
    moving = sorted(frozenset().union(*(e.loop_vars() for e in exprs)) & set(ranges))
    whole = _whole_inside(item, size, env, {name: ranges[name] for name in moving})
    if whole is not None:
        return float(whole)
    limit = max(4, int(_COMBINATIONS ** (1 / max(1, len(moving)))))
    total = 0.0
    for combo in product(*(_weighted(ranges[v], limit) for v in moving)):
        at = {**env, **{name: value for name, (value, _) in zip(moving, combo, strict=True)}}
        total += prod(weight for _, weight in combo) * _inside(item, size, at)
    return total / prod(len(ranges[v]) for v in moving)


def _whole_inside(item: Point | Range, size: int, env: Env, ranges: Mapping[str, Sequence[int]]) -> int | None:
    """Return the extent if the region is inside at all corners of the loops, and so everywhere, else None."""
    if len(ranges) > _MOST_CORNERED or not (item.at if isinstance(item, Point) else item.start).is_linear:
        return None
    if isinstance(item, Range) and (item.step.loop_vars() or item.extent.loop_vars()) & set(ranges):
        return None
    extent = 1 if isinstance(item, Point) else item.extent.evaluate(env)
    for corner in product(*((turns[0], turns[-1]) for turns in ranges.values())):
        if _inside(item, size, {**env, **dict(zip(ranges, corner, strict=True))}) != extent:
            return None
    return extent


def _inside(item: Point | Range, size: int, at: Env) -> int:
    if isinstance(item, Point):
        return int(0 <= item.at.evaluate(at) < size)
    start, step, extent = item.start.evaluate(at), max(1, item.step.evaluate(at)), item.extent.evaluate(at)
    skipped = -(-max(0, -start) // step)
    fitting = max(0, -(-(size - start) // step))
    return max(0, min(extent, fitting) - skipped)


def _control_variables(body: Sequence[Statement]) -> frozenset[str]:
    """Return the loop variables on which an inner loop bound or condition depends."""
    names: set[str] = set()
    for stmt in statements(tuple(body)):
        if isinstance(stmt, Loop):
            names |= stmt.start.loop_vars() | stmt.stop.loop_vars() | stmt.step.loop_vars()
        elif isinstance(stmt, If):
            names |= stmt.cond.loop_vars()
    return frozenset(names)


def _parallelism(body: Sequence[Statement], env: Env) -> float:
    """Return the number of iterations of the grid (the nested parallel loops)."""
    for stmt in body:
        if isinstance(stmt, Loop):
            turns = range(*(e.evaluate(env) for e in (stmt.start, stmt.stop, stmt.step)))
            inner = _parallelism(stmt.body, {**env, stmt.var: turns[0]}) if turns else 1.0
            return len(turns) * inner if stmt.hints.parallel or stmt.hints.team else inner
    return 1.0


def _weighted(turns: Sequence[int], count: int) -> list[tuple[int, float]]:
    """Return at most ``count`` of ``turns`` with weights: both ends have weight 1, the others represent more."""
    total = len(turns)
    if total <= count:
        return [(i, 1) for i in turns]
    inner = [turns[1 + k * (total - 3) // (count - 3)] for k in range(count - 2)]
    return [(turns[0], 1), *((i, (total - 2) / len(inner)) for i in inner), (turns[-1], 1)]


# -- FLOPs -------------------------------------------------------------------------------------------------------------


class Operation(NamedTuple):
    """One operation: its name, its precision class (f32, tf32, bf16 ...), and its weighted FLOPs."""

    name: str
    precision: str
    flops: float


def operations_of(stmt: Statement, env: Mapping[str, int]) -> Iterator[Operation]:
    """Yield the operations of one execution of one statement, without those of statements inside it."""
    match stmt:
        case Gemm():
            yield _product_of("gemm", stmt.a, stmt.b, stmt.precision, elements(stmt.acc.shape, env), env)
        case LibraryCall():
            operand_sizes = [tuple(e.evaluate(env) for e in o.shape) for o in stmt.operands]
            result_size = tuple(e.evaluate(env) for e in stmt.out.shape)
            flops = LIBRARY[stmt.op].flops(operand_sizes, result_size, dict(stmt.settings))
            yield Operation(f"library.{stmt.op}", _product_class(stmt.out.dtype, stmt.precision), flops)
        case MultiAssign():
            source = stmt.args[0].type
            yield Operation(stmt.op, _class(source.dtype), OPS[stmt.op].flops * elements(source.shape, env))
    for value in (v for root in stmt.values for v in subvalues(root)):
        if not isinstance(value, Apply):
            continue
        op = OPS[value.op]
        if value.op == "dot":
            precision = str(value.attr("precision", "ieee"))
            yield _product_of("dot", value.args[0], value.args[1], precision, elements(value.type.shape, env), env)
        elif op.kind in (OpKind.REDUCE, OpKind.SCAN):
            source = value.args[0].type
            yield Operation(value.op, _class(source.dtype), op.flops * elements(source.shape, env))
        elif op.flops and op.kind in (OpKind.POINTWISE, OpKind.COMPARE):
            dtype = (value.args[0] if value.args else value).type.dtype
            yield Operation(value.op, _class(dtype), op.flops * elements(value.type.shape, env))


def _class(dtype: DType) -> str:
    """Return the precision class of pointwise arithmetic in ``dtype``."""
    if dtype.is_float:
        return str(dtype.compute.value)
    return "i8" if dtype in (DType.I8, DType.U8) else "f32"


def _product_of(
    name: str, a: Value, b: Value, precision: str, results: int, env: Mapping[str, int]
) -> Operation:  # fmt: skip
    """Return a matrix product of ``results`` elements.

    Its class is f16, bf16 or f8 if both operands are stored so (matrix units), else what ``precision`` permits; a split
    precision takes several products of its class for one: six for "bf16x6"."""
    dtypes = {_stored(a), _stored(b)}
    dtype = dtypes.pop() if len(dtypes) == 1 else DType.F32
    splits = precision.partition("x")[2] if dtype is DType.F32 else ""
    depth = a.type.shape[-1].evaluate(env) if a.type.shape else 1
    return Operation(name, _product_class(dtype, precision), int(splits or 1) * 2 * results * depth)


def _product_class(dtype: DType, precision: str) -> str:
    """Return the class of products of two values of ``dtype``."""
    if dtype in (DType.F16, DType.BF16):
        return str(dtype.value)
    if dtype in FLOAT8:
        return "f8"
    if dtype in (DType.I8, DType.U8):
        return "i8"
    if dtype is DType.F64:
        return "f64"
    return precision.partition("x")[0] if precision != "ieee" else "f32"


def _stored(value: Value) -> DType:
    """Return the dtype in which an operand is multiplied: below its moves and the casts that only widen it."""
    moves = ("transpose", "reshape", "newaxis", "broadcast")
    while isinstance(value, Apply) and (value.op in moves or value.op == "cast"):
        source = value.args[0]
        if value.op == "cast" and value.type.dtype.bytes < source.type.dtype.bytes:
            break
        value = source
    return value.type.dtype
