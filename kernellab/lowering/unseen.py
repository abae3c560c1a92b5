"""Skips steps of a loop whose mask is false everywhere; two short launches before the kernel find them.

An online softmax does not change for a tile of scores that are all -inf (if values are finite: a value that is not
finite in a hidden tile is not read, while the reference multiplies it by 0). If the mask depends on values (documents,
blocks), no range of the loop gives these tiles. A first launch tests the mask of every tile, for all heads at once; a
second one lists each row's visible tiles; the kernel iterates over that list. A proof from the loop's statements
(:func:`_unchanged`) shows that a hidden step changes nothing, so no hint is needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from math import inf, prod

from kernellab.lowering.bounds import Bounds
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
from kernellab.sketch.program.walk import parallel_loops, subvalues, written_tiles

#: most steps of a loop: the second launch compares all pairs
_MOST = 512
#: least tiles that share a mask (heads): each mask is computed one more time
_SHARING = 4


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
        if not all(trips.values()) or loop.var not in used or programs_a_row < _SHARING:
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
    return most if 1 < (facts.const(most) or 0) <= _MOST else None


def _mask_that_hides(before: Sequence[Statement], loop: Loop) -> Value | None:
    """Return the mask of the loop's scores, if a step that it hides entirely changes nothing, else None."""
    if not all(isinstance(s, (Load, Assign, Gemm, Alloc)) for s in [*before, *loop.body]):
        return None
    masked = next((s for s in loop.body if _masks(s) is not None), None)
    return _masks(masked) if masked is not None and _unchanged(before, loop.body, masked) else None


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
        tile = _written(stmt)
        if tile is not None:
            written.setdefault(tile.uid, []).append(stmt)
    wanted = [v.tile.uid for v in subvalues(mask) if isinstance(v, Read)]
    needed: set[int] = set()
    while wanted:
        writers = written.get(wanted.pop(), [])
        if len(writers) != 1 or not isinstance(writers[0], (Load, Assign)):
            return None
        stmt = writers[0]
        every = [v for root in stmt.values for v in subvalues(root)]
        if any(isinstance(v, Apply) and v.op == "dot" for v in every):
            return None
        if id(stmt) not in needed:
            needed.add(id(stmt))
            wanted += [v.tile.uid for v in every if isinstance(v, Read)]
    return [s for s in [*before, *body] if id(s) in needed]


def _written(stmt: Statement) -> Tile | None:
    """Return the tile that a statement without inner statements writes."""
    return stmt.tile if isinstance(stmt, Alloc) else next(iter(written_tiles(stmt)), None)


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


# -- a step whose scores are all hidden --------------------------------------------------------------------------------


class _Kind(Enum):
    """Kinds of values in such a step."""

    OTHER = "unknown"
    LOWEST = "-inf throughout"
    ZERO = "0 throughout"
    NUMBER = "one number throughout"
    CARRIED = "a carried tile, unchanged"
    BASE = "a carried row maximum, 0 where that is -inf"
    GAP = "a carried row maximum less its base: 0, or -inf for a row that has seen nothing"
    KEEP = "exp of a gap: 1, or 0 for a row that has seen nothing"


@dataclass(frozen=True)
class _Fact:
    """A fact about a value: its kind, the uid of the carried tile that it belongs to, and its number."""

    kind: _Kind
    tile: str = ""
    number: float = 0.0


_OTHER, _LOWEST, _ZERO = _Fact(_Kind.OTHER), _Fact(_Kind.LOWEST), _Fact(_Kind.ZERO)
_MOVED = frozenset(["cast", "newaxis", "broadcast", "transpose", "reshape"])


def _unchanged(before: Sequence[Statement], body: Sequence[Statement], masked: Statement) -> bool:
    """Does a step whose scores are all -inf leave every tile that the loop carries unchanged?

    Sums that are scaled by ``exp(top - base)`` begin at 0, or at 0 where the row's largest score begins at -inf: the
    factor is 1, or 0 for a row without visible scores, whose sums are 0."""
    held: dict[str, list[Statement]] = {}
    for stmt in before:
        if (tile := _written(stmt)) is not None:
            held.setdefault(tile.uid, []).append(stmt)
    carried = {tile.uid for s in body if (tile := _written(s)) is not None} & held.keys()
    env = {uid: _Fact(_Kind.CARRIED, uid) for uid in carried}
    empty = {uid for uid in carried if len(held[uid]) == 1 and _starts_empty(held[uid][0])}
    for stmt in body:
        if isinstance(stmt, Gemm):
            if _ZERO not in (_fact(stmt.a, env, empty), _fact(stmt.b, env, empty)):
                env[stmt.acc.uid] = _OTHER
        elif isinstance(stmt, Assign):
            env[stmt.tile.uid] = _LOWEST if stmt is masked else _fact(stmt.value, env, empty)
        elif (tile := _written(stmt)) is not None:
            env[tile.uid] = _ZERO if isinstance(stmt, Alloc) and stmt.init_zero else _OTHER
    return bool(carried) and all(env[uid] == _Fact(_Kind.CARRIED, uid) for uid in carried)


def _starts_empty(stmt: Statement) -> bool:
    """Is the initial value 0, at least where a row's largest score is -inf?"""
    if isinstance(stmt, Alloc):
        return stmt.init_zero
    value = stmt.value if isinstance(stmt, Assign) else None
    if isinstance(value, Apply) and value.op == "full":
        return _is_number(value.args[0] if value.args else None, 0)
    if isinstance(value, Apply) and value.op == "where":
        test = value.args[0]
        lowest = isinstance(test, Apply) and test.op == "eq" and _is_number(test.args[1], -inf)
        return lowest and _is_number(value.args[1], 0)
    return _is_number(value, 0)


def _is_number(value: Value | None, wanted: float) -> bool:
    return isinstance(value, Const) and value.value == wanted


def _fact(value: Value, env: Mapping[str, _Fact], empty: set[str]) -> _Fact:
    if isinstance(value, Const):
        if value.value == -inf:
            return _LOWEST
        if value.value == 0:
            return _ZERO
        return _Fact(_Kind.NUMBER, number=value.value) if isinstance(value.value, (int, float)) else _OTHER
    if isinstance(value, Read):
        return env.get(value.tile.uid, _OTHER)
    if not isinstance(value, Apply):
        return _OTHER
    args = [_fact(a, env, empty) for a in value.args]
    if value.op in _MOVED:
        return args[0]
    if value.op == "where":
        return _base(value, args)
    rule = _RULES.get(value.op)
    return rule(args, empty) if rule else _OTHER


def _base(value: Apply, args: Sequence[_Fact]) -> _Fact:
    """Return the fact for ``where(top == -inf, 0, top)`` of a carried tile ``top``."""
    test, _, top = value.args
    is_lowest = isinstance(test, Apply) and test.op == "eq" and test.args[0] == top and _is_number(test.args[1], -inf)
    _, zero, fact = args
    return _Fact(_Kind.BASE, fact.tile) if is_lowest and zero == _ZERO and fact.kind is _Kind.CARRIED else _OTHER


def _max(args: Sequence[_Fact], empty: set[str]) -> _Fact:
    return next((a for a, b in (args, args[::-1]) if b == _LOWEST), _OTHER)


def _sub(args: Sequence[_Fact], empty: set[str]) -> _Fact:
    left, right = args
    if right.kind is not _Kind.BASE:
        return _OTHER
    if left == _LOWEST:
        return _LOWEST
    return _Fact(_Kind.GAP, right.tile) if left == _Fact(_Kind.CARRIED, right.tile) else _OTHER


def _mul(args: Sequence[_Fact], empty: set[str]) -> _Fact:
    for a, b in (args, args[::-1]):
        if a == _ZERO:
            return _ZERO
        if a == _LOWEST and b.kind is _Kind.NUMBER and b.number > 0:
            return _LOWEST
        if a.kind is _Kind.CARRIED and b.kind is _Kind.KEEP and a.tile in empty:
            return a
    return _OTHER


def _add(args: Sequence[_Fact], empty: set[str]) -> _Fact:
    return next((a for a, b in (args, args[::-1]) if b == _ZERO), _OTHER)


def _exp(args: Sequence[_Fact], empty: set[str]) -> _Fact:
    (of,) = args
    if of == _LOWEST:
        return _ZERO
    return _Fact(_Kind.KEEP, of.tile) if of.kind is _Kind.GAP else _OTHER


_RULES: dict[str, Callable[[Sequence[_Fact], set[str]], _Fact]] = {
    "max": _max, "sub": _sub, "mul": _mul, "add": _add, "exp": _exp, "exp2": _exp,
    "reduce_max": lambda args, empty: args[0] if args[0] == _LOWEST else _OTHER,
    "reduce_sum": lambda args, empty: args[0] if args[0] == _ZERO else _OTHER,
}  # fmt: skip


__all__ = ["Walk", "with_walks"]
