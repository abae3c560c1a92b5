"""Skips steps of a loop whose mask is false everywhere; two short launches before the kernel find them.

An online softmax does not change for a tile of scores that are all -inf (if values are finite: a value that is not
finite in a hidden tile is not read, while the reference multiplies it by 0). If the mask depends on values (documents,
blocks), no range of the loop gives these tiles. A first launch tests the mask of every tile, for all heads at once; a
second one lists each row's visible tiles; the kernel iterates over that list. A proof from the loop's statements
(hidden_step.py) shows that a hidden step changes nothing, so no hint is needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, prod

from kernellab.lowering.bounds import Bounds
from kernellab.lowering.hidden_step import leaves_unchanged, written_tile
from kernellab.lowering.python_text import Names
from kernellab.sketch.program.ints import IntExpr, IntKind, int_op, num
from kernellab.sketch.program.program import (
    Alloc,
    Apply,
    Assign,
    Const,
    DType,
    Gemm,
    If,
    Index,
    Kernel,
    Load,
    Loop,
    LoopHints,
    Point,
    Program,
    Range,
    Read,
    Region,
    Statement,
    Store,
    Tensor,
    TensorRole,
    Tile,
    Type,
    Value,
)
from kernellab.sketch.program.walk import parallel_loops, subvalues

#: most steps of a loop: the second launch compares all pairs
_MOST_STEPS = 512
#: least tiles that share a mask (heads): each mask is computed one more time
_LEAST_SHARING = 4


@dataclass(frozen=True)
class Walk:
    """The steps that a loop runs: ``count[row]`` of them, with their numbers in ``steps[row, :]``.

    ``test``: the launch that finds them."""

    loop: Loop
    test: str
    #: number of the tile with this mask
    row: IntExpr
    count: str
    steps: str
    most: IntExpr

    @property
    def first(self) -> IntExpr:
        """The start of the row's list in ``steps``."""
        return int_op("*", self.row, self.most)


def with_walks(program: Program, values: Mapping[str, int]) -> tuple[Program, dict[str, Walk]]:
    """Return ``program`` with the two launches before each kernel that has such a loop, and the kernels' walks by
    name."""
    kernels: list[Kernel] = []
    tensors = list(program.tensors)
    walks: dict[str, Walk] = {}
    taken_names = {t.name for t in tensors} | set(program.symbols) | {c.name for c in program.constexprs}
    free = Names(frozenset(taken_names | {k.name for k in program.kernels}))
    for kernel in program.kernels:
        masked = _Masked.of(kernel, values, free)
        if masked is not None:
            launches = masked.launches()
            tensors += launches[1]
            kernels += launches[0]
            walks[kernel.name] = masked.walk
            names = frozenset([masked.walk.count, masked.walk.steps])
            kernel = replace(kernel, reads=kernel.reads | names)
        kernels.append(kernel)
    return (replace(program, kernels=tuple(kernels), tensors=tuple(tensors)), walks) if walks else (program, {})


@dataclass(frozen=True)
class _Masked:
    """A loop over tiles with a mask, and what the mask needs."""

    kernel: Kernel
    mask: Value
    #: parallel loops that the mask depends on
    loops: list[Loop]
    needs: list[Statement]
    walk: Walk
    rows: IntExpr
    stop: IntExpr
    #: name of the launch that lists the tiles
    lists: str

    @classmethod
    def of(cls, kernel: Kernel, values: Mapping[str, int], free: Names) -> _Masked | None:
        """Return the loop of ``kernel`` if steps that its mask hides may be skipped; None if not, or if that would cost
        more than it saves."""
        loops, between, body = parallel_loops(kernel.body)
        facts = Bounds(dict(values), loops={lp.var: lp for lp in loops})
        if between or any(lp.start.loop_vars() | lp.stop.loop_vars() for lp in loops):
            return None  # all rows of the list have one length
        loop = _only_loop(body)
        most = _most_steps(loop, facts) if loop is not None else None
        if loop is None or most is None:
            return None
        before = body[: body.index(loop)]
        mask = _mask_that_hides(before, loop)
        needs = _needed(mask, before, loop.body) if mask is not None else None
        if mask is None or needs is None:
            return None
        if not any(isinstance(s, Load) or _picks(s.values) for s in [*needs, _Only(mask)]):
            return None  # the mask depends on positions only: the loop's range and guards exclude what is hidden
        used = _variables([*needs, _Only(mask)]) | loop.stop.loop_vars()
        trips = {lp.var: facts.const(lp.trips) for lp in loops}
        programs_a_row = prod(n or 0 for var, n in trips.items() if var not in used)
        if not all(trips.values()) or loop.var not in used or programs_a_row < _LEAST_SHARING:
            return None  # too few programs read a row of the list
        of_mask = [lp for lp in loops if lp.var in used]
        row, rows = _row_number(of_mask)
        test, counts, steps, lists = (
            free.fresh(f"{kernel.name}_{what}") for what in ("seen", "count", "steps", "walk")
        )
        walk = Walk(loop, test, row, counts, steps, most)
        return cls(kernel, mask, of_mask, needs, walk, rows, loop.stop, lists)

    def launches(self) -> tuple[list[Kernel], list[Tensor]]:
        """Return the launch that tests every tile's mask, the one that lists the visible tiles, and their results."""
        walk = self.walk
        table = (self.rows, walk.most)
        seen = Tensor(walk.test, table, DType.I32, TensorRole.TEMP)
        steps = Tensor(walk.steps, table, DType.I32, TensorRole.TEMP)
        count = Tensor(walk.count, table[:1], DType.I32, TensorRole.TEMP)
        return [self._test(seen), self._list(seen, steps, count)], [seen, steps, count]

    def _test(self, seen: Tensor) -> Kernel:
        loop, hints = self.walk.loop, LoopHints(parallel=True, axis="grididx")
        var = IntExpr(IntKind.LOOP, name=loop.var)
        place = Region(seen, (Point(self.walk.row), Point(int_op("//", var, loop.step))))
        shape = self.mask.type.shape
        shown = Apply(Type(shape, DType.I32), "cast", (self.mask,))
        axes = tuple(range(len(shape)))
        shown = Apply(Type((), DType.I32), "reduce_max", (shown,), (("axes", axes), ("keepdims", False)))
        here = Tile(f"{seen.name}_here", f"{seen.name}_here", (), DType.I32)
        then = (*self.needs, Assign(here, shown, True), Store(place, Read(Type((), DType.I32), here)))
        none = Store(place, Const(Type((), DType.I32), 0))
        body: tuple[Statement, ...] = (If(int_op("<", var, self.stop), then, (none,)),)
        for lp in reversed([*self.loops, replace(loop, stop=int_op("*", self.walk.most, loop.step))]):
            body = (replace(lp, body=body, hints=hints),)
        reads = frozenset(t.name for t in _tensors([*self.needs, _Only(self.mask)]))
        return Kernel(seen.name, body, reads, frozenset([seen.name]), constexprs=frozenset())

    def _list(self, seen: Tensor, steps: Tensor, count: Tensor) -> Kernel:
        most, whole = self.walk.most, Type((self.walk.most,), DType.I32)
        row = IntExpr(IntKind.LOOP, name="row")
        lane = (Point(row), Range(num(0), most, num(1)))
        shown, rank, order = (Tile(n, n, whole.shape, DType.I32) for n in ("shown", "rank", "order"))
        ranks = Read(whole, rank)
        place = Apply(whole, "cast", (Apply(Type(whole.shape, DType.I64), "arange", (), ()),))
        across = Apply(Type((num(1), most), DType.I32), "newaxis", (ranks,), (("axes", (0,)),))
        down = Apply(Type((most, num(1)), DType.I32), "newaxis", (place,), (("axes", (1,)),))
        # the nth visible tile (from 0) follows as many tiles as have a rank of at most n
        earlier = Apply(Type((most, most), DType.BOOL), "le", (across, down))
        earlier = Apply(Type((most, most), DType.I32), "cast", (earlier,))
        orders = Apply(whole, "reduce_sum", (earlier,), (("axes", (1,)), ("keepdims", False)))
        ordered, none = Read(whole, order), Const(Type((), DType.I32), 0)
        inside = Apply(Type(whole.shape, DType.BOOL), "lt", (ordered, Index(none.type, most)))
        shows = Apply(Type((), DType.I32), "reduce_max", (ranks,), (("axes", (0,)), ("keepdims", False)))
        # a row without visible tiles runs one step, which changes nothing
        least = Apply(Type((), DType.I32), "max", (shows, Const(Type((), DType.I32), 1)))
        body = (
            Load(shown, Region(seen, lane), 0, True),
            Assign(rank, Apply(whole, "cumsum", (Read(whole, shown),), (("axis", 0),)), True),
            Assign(order, orders, True),
            Store(Region(steps, lane), Apply(whole, "where", (inside, ordered, none))),
            Store(Region(count, (Point(row),)), least),
        )
        loop = Loop("row", num(0), self.rows, num(1), body, LoopHints(parallel=True, axis="grididx"))
        writes = frozenset([steps.name, count.name])
        return Kernel(self.lists, (loop,), frozenset([seen.name]), writes, constexprs=frozenset())


@dataclass(frozen=True)
class _Only:
    """A value in the place of a statement, for functions that iterate over statements."""

    value: Value

    @property
    def values(self) -> tuple[Value, ...]:
        return (self.value,)


def _only_loop(body: Sequence[Statement]) -> Loop | None:
    inner = [s for s in body if isinstance(s, Loop)]
    return inner[0] if len(inner) == 1 else None


def _most_steps(loop: Loop, facts: Bounds) -> IntExpr | None:
    """Return the most steps of ``loop`` in any program; None if they cannot be listed."""
    ends = loop.stop.args if loop.stop.op == "min" else (loop.stop,)
    size = next((e for e in ends if facts.const(e) is not None), None)
    if loop.start != num(0) or size is None or loop.hints.team:
        return None
    if (facts.low(loop.stop) or 0) < 1:
        return None  # a row without visible tiles runs the first step, which must exist
    most = int_op("cdiv", size, loop.step)
    return most if 1 < (facts.const(most) or 0) <= _MOST_STEPS else None


def _mask_that_hides(before: Sequence[Statement], loop: Loop) -> Value | None:
    """Return the mask of the loop's scores, if a step that it hides entirely changes nothing, else None."""
    if not all(isinstance(s, (Load, Assign, Gemm, Alloc)) for s in [*before, *loop.body]):
        return None
    masked = next((s for s in loop.body if _masks(s) is not None), None)
    return _masks(masked) if masked is not None and leaves_unchanged(before, loop.body, masked) else None


def _row_number(loops: Sequence[Loop]) -> tuple[IntExpr, IntExpr]:
    """Return the row-major position of an iteration of ``loops``, and the number of iterations."""
    row, rows = num(0), num(1)
    for lp in loops:
        count = int_op("cdiv", int_op("-", lp.stop, lp.start), lp.step)
        place = int_op("//", int_op("-", IntExpr(IntKind.LOOP, name=lp.var), lp.start), lp.step)
        row, rows = int_op("+", int_op("*", row, count), place), int_op("*", rows, count)
    return row, rows


def _masks(stmt: Statement) -> Value | None:
    """Return the mask if a statement hides scores (``scores = where(mask, scores, -inf)``), else None."""
    value = stmt.value if isinstance(stmt, Assign) else None
    if not isinstance(value, Apply) or value.op != "where" or len(value.type.shape) != 2:
        return None
    hidden = value.args[2]
    lowest = isinstance(hidden, Const) and hidden.value == -inf
    return value.args[0] if lowest and isinstance(stmt, Assign) and value.args[1] == _read(stmt.tile) else None


def _read(tile: Tile) -> Read:
    return Read(Type(tile.shape, tile.dtype), tile)


def _needed(mask: Value, before: Sequence[Statement], body: Sequence[Statement]) -> list[Statement] | None:
    """Return the statements that compute the mask, in order; None if they are not only loads and values of tiles that
    are written once."""
    written: dict[str, list[Statement]] = {}
    for stmt in [*before, *body]:
        tile = written_tile(stmt)
        if tile is not None:
            written.setdefault(tile.uid, []).append(stmt)
    worklist = [v.tile.uid for v in subvalues(mask) if isinstance(v, Read)]
    needed: set[int] = set()
    while worklist:
        writers = written.get(worklist.pop(), [])
        if len(writers) != 1 or not isinstance(writers[0], (Load, Assign)):
            return None
        stmt = writers[0]
        every = [v for root in stmt.values for v in subvalues(root)]
        if any(isinstance(v, Apply) and v.op == "dot" for v in every):
            return None
        if id(stmt) not in needed:
            needed.add(id(stmt))
            worklist += [v.tile.uid for v in every if isinstance(v, Read)]
    return [s for s in [*before, *body] if id(s) in needed]


def _picks(values: Sequence[Value]) -> bool:
    return any(isinstance(v, Apply) and v.op == "gather" for root in values for v in subvalues(root))


def _tensors(parts: Sequence[Statement | _Only]) -> list[Tensor]:
    tensors = [s.region.tensor for s in parts if isinstance(s, Load)]
    for value in (v for s in parts for root in s.values for v in subvalues(root)):
        tensor = value.attr("tensor") if isinstance(value, Apply) else None
        tensors += [tensor] if isinstance(tensor, Tensor) else []
    return tensors


def _variables(parts: Sequence[Statement | _Only]) -> frozenset[str]:
    """Return the loop variables in places and values."""
    names: set[str] = set()
    for part in parts:
        for index in part.region.index if isinstance(part, Load) else ():
            names |= _of_item(index)
        for value in (v for root in part.values for v in subvalues(root)):
            if isinstance(value, Apply):
                for _, attr in value.attrs:
                    for item in attr if isinstance(attr, (tuple, list)) else (attr,):
                        names |= item.loop_vars() if isinstance(item, IntExpr) else _of_item(item)
            elif isinstance(value, Index):
                names |= value.expr.loop_vars()
    return frozenset(names)


def _of_item(item: object) -> frozenset[str]:
    if isinstance(item, Point):
        return item.at.loop_vars()
    return item.start.loop_vars() if isinstance(item, Range) else frozenset()


__all__ = ["Walk", "with_walks"]
