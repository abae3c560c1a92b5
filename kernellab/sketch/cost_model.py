"""Counts the work of one kernel: a tree of loops with the FLOPs, traffic and footprint of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import prod

from kernellab.sketch.cost_gather import elements, picks
from kernellab.sketch.ints import IntExpr
from kernellab.sketch.ops import OPS, OpKind
from kernellab.sketch.program import (
    Alloc,
    Apply,
    Assign,
    AtomicAdd,
    DType,
    Gemm,
    If,
    Kernel,
    Load,
    Loop,
    MultiAssign,
    Point,
    Range,
    Region,
    Statement,
    Store,
    Tile,
    Value,
    statements,
    subvalues,
    values_of,
)

#: iterations of a loop that are looked at where something inside depends on them
_LOOKED_AT = 16
#: combinations of loop variables that are looked at to average a clipped extent
_COMBINATIONS = 256

Env = dict[str, int]
Move = Load | Store | AtomicAdd


@dataclass(frozen=True)
class Access:
    """One load or store statement: bytes inside the tensor that it moves in the whole kernel."""

    tensor: str
    line: int
    bytes: float
    is_write: bool


@dataclass
class Node:
    """One loop (or the kernel itself), everything inside included; counts are of the whole kernel."""

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


def build(kernel: Kernel, names: Mapping[str, int], cache_bytes: int) -> Model:
    """The model of ``kernel`` with symbols and constexprs ``names`` and a last cache of ``cache_bytes``."""
    env = dict(names)
    counter = _Counter(_control_variables(kernel.body))
    root = Node(kernel.name, kernel.span.line, False, 1.0, footprint=footprint(kernel.body, env))
    counter.visit(kernel.body, env, {}, 1.0, [root])
    traffic = _Traffic(cache_bytes)
    return Model(
        kernel=kernel.name,
        root=root,
        accesses=tuple(counter.accesses.values()),
        unique=_by_tensor(traffic.unique(kernel.body, env)),
        slow=_by_tensor(traffic.block(kernel.body, env)),
        parallelism=_parallelism(kernel.body, env),
    )


class _Counter:
    """Walks the statements with a representative iteration of each loop, and several where control depends on it."""

    def __init__(self, controls: frozenset[str]) -> None:
        self.controls = controls
        self.accesses: dict[int, Access] = {}

    def visit(
        self, body: Sequence[Statement], env: Env, ranges: Mapping[str, Sequence[int]], times: float, path: list[Node]
    ) -> None:
        """Adds ``body``, run ``times`` in all, to every node of ``path``."""
        for stmt in body:
            if isinstance(stmt, Loop):
                self._loop(stmt, env, ranges, times, path)
            elif isinstance(stmt, If):
                self.visit(stmt.then if stmt.cond.evaluate(env) else stmt.orelse, env, ranges, times, path)
            elif isinstance(stmt, (Load, Store, AtomicAdd)):
                self._move(stmt, env, ranges, times, path)
            for region, shape, written, read in picks(stmt):
                self._count(id(stmt), stmt, region, times * elements(shape, env), written, read, path)
            for kind, count in flops_of(stmt, env).items():
                for node in path:
                    node.flops[kind] = node.flops.get(kind, 0.0) + times * count

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
        for i, weight in _weighted(turns, _LOOKED_AT):
            # a variable that is pinned here is averaged over nowhere else
            seen = {**ranges, loop.var: (i,)}
            self.visit(loop.body, {**env, loop.var: i}, seen, times * weight, [*path, node])

    def _move(self, stmt: Move, env: Env, ranges: Mapping[str, Sequence[int]], times: float, path: list[Node]) -> None:
        region = stmt.region
        touched = 1.0
        for dim, item in enumerate(region.index):
            touched *= _average_inside(item, region.tensor.shape[dim].evaluate(env), env, ranges)
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
    """Elements of one dimension of a region that lie inside the tensor, averaged over the loops that move it."""
    exprs = (item.at,) if isinstance(item, Point) else (item.start, item.step)
    moving = sorted(frozenset().union(*(e.loop_vars() for e in exprs)) & set(ranges))
    limit = max(4, int(_COMBINATIONS ** (1 / max(1, len(moving)))))
    total = 0.0
    for combo in product(*(_weighted(ranges[v], limit) for v in moving)):
        at = {**env, **{name: value for name, (value, _) in zip(moving, combo, strict=True)}}
        total += prod(weight for _, weight in combo) * _inside(item, size, at)
    return total / prod(len(ranges[v]) for v in moving)


def _inside(item: Point | Range, size: int, at: Env) -> int:
    if isinstance(item, Point):
        return int(0 <= item.at.evaluate(at) < size)
    start, step, extent = item.start.evaluate(at), max(1, item.step.evaluate(at)), item.extent.evaluate(at)
    skipped = -(-max(0, -start) // step)
    fitting = max(0, -(-(size - start) // step))
    return max(0, min(extent, fitting) - skipped)


# -- arithmetic --------------------------------------------------------------------------------------------------------


def flops_of(stmt: Statement, env: Mapping[str, int]) -> dict[str, float]:
    """Weighted FLOPs of one execution of one statement (no loops), by precision class."""
    counts: dict[str, float] = {}

    def add(kind: str, count: float) -> None:
        counts[kind] = counts.get(kind, 0.0) + count

    values = values_of(stmt)
    match stmt:
        case Gemm():
            add(_matmul_class(stmt.a, stmt.b, stmt.precision), 2 * _size(stmt.acc.shape, env) * _depth(stmt.a, env))
        case MultiAssign():
            add(_class(stmt.args[0].type.dtype), OPS[stmt.op].flops * _size(stmt.args[0].type.shape, env))
    for value in (v for root in values for v in subvalues(root)):
        if not isinstance(value, Apply):
            continue
        op = OPS[value.op]
        if value.op == "dot":
            kind = _matmul_class(value.args[0], value.args[1], str(value.attr("precision", "ieee")))
            add(kind, 2 * _size(value.type.shape, env) * _depth(value.args[0], env))
        elif op.kind in (OpKind.REDUCE, OpKind.SCAN):
            add(_class(value.args[0].type.dtype), op.flops * _size(value.args[0].type.shape, env))
        elif op.flops and op.kind in (OpKind.POINTWISE, OpKind.COMPARE):
            add(_class((value.args[0] if value.args else value).type.dtype), op.flops * _size(value.type.shape, env))
    return counts


def _class(dtype: DType) -> str:
    """The precision class in which pointwise arithmetic of ``dtype`` is counted."""
    if dtype.is_float:
        return str(dtype.compute.value)
    return "i8" if dtype in (DType.I8, DType.U8) else "f32"


def _matmul_class(a: Value, b: Value, precision: str) -> str:
    """f16, bf16 or f8 where both operands are stored so (matrix units), else what ``precision`` permits."""
    dtypes = {_stored(a), _stored(b)}
    if len(dtypes) == 1:
        dtype = dtypes.pop()
        if dtype in (DType.F16, DType.BF16):
            return str(dtype.value)
        if dtype in (DType.F8E4M3, DType.F8E5M2):
            return "f8"
        if dtype in (DType.I8, DType.U8):
            return "i8"
        if dtype is DType.F64:
            return "f64"
    classes: dict[str, str] = {"tf32": "tf32", "tf32x3": "tf32", "bf16": "bf16", "bf16x3": "bf16", "bf16x6": "bf16"}
    return classes.get(precision, "f32")


def _stored(value: Value) -> DType:
    """The dtype below the casts and moves of an operand."""
    moves = ("cast", "transpose", "reshape", "newaxis", "broadcast")
    while isinstance(value, Apply) and value.op in moves:
        value = value.args[0]
    return value.type.dtype


def _depth(a: Value, env: Mapping[str, int]) -> int:
    return a.type.shape[-1].evaluate(env) if a.type.shape else 1


def _size(shape: Sequence[IntExpr], env: Mapping[str, int]) -> int:
    return prod(max(0, e.evaluate(env)) for e in shape)


# -- memory ------------------------------------------------------------------------------------------------------------


def footprint(body: Sequence[Statement], env: Mapping[str, int]) -> int:
    """Bytes of the tiles that are alive at once: those of this block, and of the largest block inside it."""
    own: dict[str, Tile] = {}
    inner = 0
    for stmt in body:
        match stmt:
            case Alloc() | Load() | Assign():
                own.setdefault(stmt.tile.uid, stmt.tile)
            case MultiAssign():
                own.update({t.uid: t for t in stmt.tiles})
            case Loop():
                inner = max(inner, footprint(stmt.body, env))
            case If():
                inner = max(inner, footprint(stmt.then, env), footprint(stmt.orelse, env))
    return sum(_size(t.shape, env) * t.dtype.bytes for t in own.values()) + inner


class _Traffic:
    """Bytes from the slowest level, with a last cache of ``capacity`` bytes: what fits together is fetched once."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity

    def block(self, body: Sequence[Statement], env: Env) -> dict[tuple[str, bool], float]:
        """Bytes by (tensor, is it written) of one execution of ``body`` with outer loops fixed in ``env``."""
        unique = self.unique(body, env)
        if sum(unique.values()) <= self.capacity:
            return unique
        total: dict[tuple[str, bool], float] = {}
        for stmt in body:
            for key, count in self._statement(stmt, env).items():
                total[key] = total.get(key, 0.0) + count
        return total

    def _statement(self, stmt: Statement, env: Env) -> dict[tuple[str, bool], float]:
        if isinstance(stmt, If):
            return self.block(stmt.then if stmt.cond.evaluate(env) else stmt.orelse, env)
        if not isinstance(stmt, Loop):
            return self.unique((stmt,), env)
        whole = self.unique((stmt,), env)
        if sum(whole.values()) <= self.capacity:
            return whole
        turns = range(*(e.evaluate(env) for e in (stmt.start, stmt.stop, stmt.step)))
        if not turns:
            return {}
        inner = {**env, stmt.var: turns[0]}
        once = self.block(stmt.body, inner)
        resident = sum(self.unique(stmt.body, inner).values()) <= self.capacity
        result = {}
        for key, count in once.items():
            # what an iteration leaves in the cache serves the next one; else everything is fetched again
            again = count * len(turns)
            result[key] = min(again, whole[key]) if resident else max(again, whole[key])
        return result

    def unique(self, body: Sequence[Statement], env: Env) -> dict[tuple[str, bool], float]:
        """Distinct bytes that ``body`` touches, by (tensor, is it written): the box round its regions."""
        boxes: dict[tuple[str, bool], float] = {}
        for region, is_write, ranges in _regions(body, env, {}):
            touched = 1.0
            for dim, item in enumerate(region.index):
                touched *= _covered(item, region.tensor.shape[dim].evaluate(env), env, ranges)
            key = (region.tensor.name, is_write)
            boxes[key] = max(boxes.get(key, 0.0), touched * region.tensor.dtype.bytes)
        for region, is_write, touched in _picked(body, env, {}, 1):
            key = (region.tensor.name, is_write)
            boxes[key] = max(boxes.get(key, 0.0), touched * region.tensor.dtype.bytes)
        return boxes


def _regions(
    body: Sequence[Statement], env: Env, ranges: Mapping[str, range]
) -> Iterator[tuple[Region, bool, Mapping[str, range]]]:
    for stmt in body:
        if isinstance(stmt, (Load, Store, AtomicAdd)):
            yield stmt.region, not isinstance(stmt, Load), ranges
            if isinstance(stmt, AtomicAdd):
                yield stmt.region, False, ranges
        elif isinstance(stmt, If):
            yield from _regions((*stmt.then, *stmt.orelse), env, ranges)
        elif isinstance(stmt, Loop):
            turns = _widest(stmt, env, ranges)
            if turns:
                yield from _regions(stmt.body, {**env, stmt.var: turns[0]}, {**ranges, stmt.var: turns})


def _picked(
    body: Sequence[Statement], env: Env, ranges: Mapping[str, range], times: int
) -> Iterator[tuple[Region, bool, float]]:
    """Boxes that tile indices reach into, whether written, and the most distinct elements touched there."""
    for stmt in body:
        if isinstance(stmt, If):
            yield from _picked((*stmt.then, *stmt.orelse), env, ranges, times)
        elif isinstance(stmt, Loop):
            turns = _widest(stmt, env, ranges)
            if turns:
                inner = {**ranges, stmt.var: turns}
                yield from _picked(stmt.body, {**env, stmt.var: turns[0]}, inner, times * len(turns))
        else:
            for region, shape, written, read in picks(stmt):
                sizes = [d.evaluate(env) for d in region.tensor.shape]
                whole = prod(_covered(i, n, env, ranges) for i, n in zip(region.index, sizes, strict=True))
                for way in ([True] if written else []) + ([False] if read else []):
                    yield region, way, min(whole, times * elements(shape, env))


def _widest(loop: Loop, env: Env, ranges: Mapping[str, range]) -> range:
    """The loop's turns over all iterations of the loops around it."""
    low = min(_corners(loop.start, env, ranges))
    high = max(_corners(loop.stop, env, ranges))
    return range(low, high, max(1, loop.step.evaluate(env)))


def _covered(item: Point | Range, size: int, env: Env, ranges: Mapping[str, range]) -> float:
    """Distinct elements of one dimension that are touched while the loops of ``ranges`` run."""
    start = item.at if isinstance(item, Point) else item.start
    extent = 1 if isinstance(item, Point) else item.extent.evaluate(env)
    step = 1 if isinstance(item, Point) else max(1, item.step.evaluate(env))
    corners = _corners(start, env, ranges)
    low, high = max(0, min(corners)), min(size, max(corners) + (extent - 1) * step + 1)
    turns = prod(len(ranges[v]) for v in start.loop_vars() if v in ranges)
    return max(0, min(high - low, turns * extent))


def _corners(expr: IntExpr, env: Env, ranges: Mapping[str, range]) -> list[int]:
    moving = sorted(v for v in expr.loop_vars() if v in ranges)
    ends = [(ranges[v][0], ranges[v][-1]) for v in moving]
    return [expr.evaluate({**env, **dict(zip(moving, corner, strict=True))}) for corner in product(*ends)]


def _by_tensor(sides: Mapping[tuple[str, bool], float]) -> dict[str, float]:
    total: dict[str, float] = {}
    for (name, _), count in sides.items():
        total[name] = total.get(name, 0.0) + count
    return total


# -- loops -------------------------------------------------------------------------------------------------------------


def _control_variables(body: Sequence[Statement]) -> frozenset[str]:
    """Loop variables on which an inner loop bound or condition depends."""
    names: set[str] = set()
    for stmt in statements(tuple(body)):
        if isinstance(stmt, Loop):
            names |= stmt.start.loop_vars() | stmt.stop.loop_vars() | stmt.step.loop_vars()
        elif isinstance(stmt, If):
            names |= stmt.cond.loop_vars()
    return frozenset(names)


def _parallelism(body: Sequence[Statement], env: Env) -> float:
    """The number of iterations of the grid (the nested parallel loops)."""
    for stmt in body:
        if isinstance(stmt, Loop):
            turns = range(*(e.evaluate(env) for e in (stmt.start, stmt.stop, stmt.step)))
            inner = _parallelism(stmt.body, {**env, stmt.var: turns[0]}) if turns else 1.0
            return len(turns) * inner if stmt.hints.parallel else inner
    return 1.0


def _weighted(turns: Sequence[int], count: int) -> list[tuple[int, float]]:
    """At most ``count`` of ``turns``, each with how many it stands for: both ends for themselves, the rest for more."""
    total = len(turns)
    if total <= count:
        return [(i, 1) for i in turns]
    inner = [turns[1 + k * (total - 3) // (count - 3)] for k in range(count - 2)]
    return [(turns[0], 1), *((i, (total - 2) / len(inner)) for i in inner), (turns[-1], 1)]
