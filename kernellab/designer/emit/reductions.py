"""Launches of pointwise work and reductions, in passes over the reduced axes.

A reduction that depends on an earlier one runs in a later pass, unless the whole row is one tile or a single read
computes both. Loop-invariant values are computed outside the loop.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kernellab.designer.emit.loops import begin, grid, loop
from kernellab.designer.emit.nodes import ZERO, Value, call, compute_dtype, filled, joined, let, listed, plus
from kernellab.designer.emit.stores import runs, store_all
from kernellab.designer.emit.writer import Writer, identity
from kernellab.designer.ir.dtypes import DTYPES, HALVES
from kernellab.designer.ir.expr import Axis, Op, Red, walk
from kernellab.designer.ir.normal import Output
from kernellab.designer.ir.pairs import below_of, first_of, held_finite, mean_of_squares_about
from kernellab.errors import DesignError
from kernellab.sketch.syntax import tree
from kernellab.sketch.syntax.tree import Binary, Expr, Name, Num, Stmt


def passes(w: Writer) -> tuple[Stmt, ...]:
    """Return the statements of a launch that reduces or does only pointwise work."""
    par, red = begin(w)
    write_passes(w, [a for a in red if a not in w.t.whole])
    return grid(w, par, w.scopes[0].body)


def scatter(w: Writer) -> tuple[Stmt, ...]:
    """Return the statements of a launch that writes at indices that are values; with ``run``, a program writes that
    many rows."""
    if not w.t.run:
        return passes(w)
    par, _ = begin(w)
    runs(w, next(a for a in par if a not in w.t.blocks and a not in w.k.stored_axes))
    return grid(w, par, w.scopes[0].body)


def copy(w: Writer) -> tuple[Stmt, ...]:
    """Return the statements of a launch that packs contiguously what windows read, reading along the source's rows."""
    letters = dict.fromkeys(w.k.red, "k") | {w.k.stored_axes[-1]: "c"}
    par, red = begin(w, letters)
    taps = (ix.win for e in w.k.loads for ix in e.index if ix.win is not None)
    w.at_tap = {tap: w.vars[tap.k] for tap in taps if tap.k is not None}
    write_passes(w, [a for a in red if a not in w.t.whole])
    return grid(w, par, w.scopes[0].body)


def write_passes(w: Writer, loops: list[Axis]) -> None:
    """Write the passes over ``loops``; outputs that vary along the reduced axes are stored in an additional pass."""
    together = pairs(w) if loops else {}
    levels = _levels(w, together)
    early = w.k.early if loops and levels else []
    for level in range(max(levels.values(), default=-1) + 1):
        group = [r for r in w.k.reds if levels[id(r)] == level]
        w.pads_for(group, loops)
        if loops:
            _pass(w, group, loops, together, early if level == 0 else ())
        else:
            for r in group:
                w.define(r, w.scopes[0], w.reduced(r), w.title(r))
            _forget_cheap(w)
    w.pads = dict(w.divisors)
    tail = [o for o in w.k.outs if _varies(w, o) and o not in early]
    if tail and loops:
        loop(w, loops, lambda: store_all(w, tail))
    else:
        store_all(w, tail)
    store_all(w, (o for o in w.k.outs if o not in tail and o not in early))


def _forget_cheap(w: Writer) -> None:
    """On a CPU, drop cheap values: an addition costs less than a row of results kept for the next pass."""
    if w.t.core != "coreidx":
        return
    known_values = w.scopes[0].known
    for e in w.keep:
        wide = isinstance(e, Op) and e.op in ("add", "sub", "mul") and bool(w.free(e) & w.k.red)
        if wide and not any(isinstance(a, Op) and w.free(a) & w.k.red for a in e.args):  # type: ignore[union-attr]
            known_values.pop(id(e), None)


def _varies(w: Writer, o: Output) -> bool:
    axes = {leaf for ix in o.index for leaf in ix.leaves()}
    return bool(axes & w.inner)


def _levels(w: Writer, together: Mapping[int, Pair]) -> dict[int, int]:
    """Return the pass in which each reduction runs; the second of a pair runs with the first."""
    levels: dict[int, int] = {}
    for r in _ordered(w):
        if id(r) in together:
            levels[id(r)] = levels[id(together[id(r)].first)]
            continue
        inside = [x for x in walk(r, inside=True) if isinstance(x, Red) and x is not r and id(x) in levels]
        levels[id(r)] = 1 + max((levels[id(x)] for x in inside), default=-1)
    return levels


def _ordered(w: Writer) -> list[Red]:
    reds = {id(r): r for r in w.k.reds}
    order: list[Red] = []
    visited: dict[int, object] = {}
    for r in w.k.reds:
        order += [x for x in walk(r, visited) if id(x) in reds]  # type: ignore[misc]
    return order


def _pass(
    w: Writer, group: list[Red], loops: list[Axis], together: Mapping[int, Pair], early: Sequence[Output]
) -> None:
    """Write one pass: running results before the loop, final results after it; ``early`` outputs are stored in the
    loop."""
    row = w.scopes[0]
    group_pairs = [together[id(r)] for r in group if id(r) in together]
    group = [r for r in group if not any(r is p.first or r is p.second for p in group_pairs)]
    found_with = _found_with(w, group)
    running = [_started(w, r) for r in group if r not in found_with.values()]
    online = [RunningPair(w, pair) for pair in group_pairs]

    def body() -> None:
        for each in running:
            _accumulate(w, each)
        for pair in online:
            pair.step()
        store_all(w, early)

    loop(w, loops, body)
    for pair in online:
        pair.finish()
    for each in running:
        r, name = each.of, each.name
        if each.best and _by_lanes(w, r):
            name = _first_of_lanes(w, each, found_with.get(id(r)))
        elif _by_lanes(w, r):
            name = w.names.fresh(w.title(r))
            row.body.append(let(name, w.reduce_call(r, Value(Name(each.name), w.lane_axes(r)))))
        w.known_as(r, row, Value(Name(name), w.kept(r)))


@dataclass(frozen=True)
class _Running:
    """A reduction in progress: the name of its running result, and of the best value so far (argmax, argmin)."""

    of: Red
    name: str
    best: str


def _by_lanes(w: Writer, r: Red) -> bool:
    kinds = ("sum", "max", "min", "prod", "argmax", "argmin")
    return w.t.lanes and r.kind in kinds and w.lane_axes(r) != w.kept(r)


def _found_with(w: Writer, group: list[Red]) -> dict[int, Red]:
    """Return the extreme values that the search for their positions also computes."""
    searches = [r for r in group if r.kind.startswith("arg") and _by_lanes(w, r)]
    pairs = ((s, r) for s in searches for r in group if r.kind == s.kind[3:] and r.arg is s.arg)
    return {id(s): r for s, r in pairs}


def _first_of_lanes(w: Writer, running: _Running, value: Red | None) -> str:
    """Return the first position of the best value, from each lane's best value and its position; ``value``: the
    reduction that this best value equals."""
    r, best = running.of, Name(running.best)
    row, lanes, axis = w.scopes[0], w.lane_axes(r), r.axes[0]
    word = "reduce_max" if r.kind == "argmax" else "reduce_min"
    best_name, place_name = w.names.fresh(f"{running.best}2"), w.names.fresh(w.title(r))
    row.body.append(let(best_name, w.reduce_call(r, Value(best, lanes), word)))
    if value is not None:
        w.known_as(value, row, Value(Name(best_name), w.kept(r)))
    equal = Binary("==", best, w.spread(Value(Name(best_name), w.kept(r)), lanes).tree)
    places = w.spread(Value(call("arange", w.extent(axis)), (axis,)), lanes).tree
    matches = call("logical_or", equal, call("isnan", best))
    chosen = call("where", matches, Binary("+", Name(running.name), places), Num(2**31 - 1))
    row.body.append(let(place_name, w.reduce_call(r, Value(chosen, lanes), "reduce_min")))
    return place_name


def _started(w: Writer, r: Red) -> _Running:
    """Declare a reduction before its loop, with its identity, in every lane if each lane keeps its own result."""
    name = w.names.fresh(w.title(r))
    shape = w.shape(w.lane_axes(r) if _by_lanes(w, r) else w.kept(r))
    row = w.scopes[0].body
    if r.kind == "any":
        row.append(let(name, filled(shape, ZERO, "i32")))
        return _Running(r, name, "")
    if not r.kind.startswith("arg"):
        row.append(let(name, filled(shape, identity(r), DTYPES[r.dtype])))
        return _Running(r, name, "")
    best = w.names.fresh(f"{name}_value")
    row.append(let(best, filled(shape, identity(r), DTYPES[compute_dtype(r.arg.dtype)])))
    # a narrow position leaves registers for the elements
    narrow = _by_lanes(w, r) and all(isinstance(a.extent, int) and a.extent < 2**31 for a in r.axes)
    row.append(let(name, filled(shape, ZERO, "i32" if narrow else "i64")))
    return _Running(r, name, best)


def _accumulate(w: Writer, running: _Running) -> None:
    r, name = running.of, running.name
    arg = w.masked(r)
    tiled = [a for a in w.lane_axes(r) if a in r.axes]
    if running.best:
        _accumulate_at(w, running, arg, tiled)
        return
    if r.kind == "any":
        value = Value(call("cast", arg.tree, Name("i32")), arg.axes)
        part = w.reduce_call(r, value, "reduce_max") if tiled else value.tree
        w.body.append(let(name, call("max", Name(name), part)))
        return
    if _by_lanes(w, r):
        part = w.spread(arg, w.lane_axes(r)).tree
    else:
        part = w.reduce_call(r, arg) if tiled else w.spread(arg, w.kept(r)).tree
    w.body.append(let(name, joined(r.kind, Name(name), part)))


def _accumulate_at(w: Writer, running: _Running, arg: Value, tiled: list[Axis]) -> None:
    """Keep the best value and its first position; the first NaN beats everything else."""
    r = running.of
    if len(r.axes) != 1:
        raise DesignError(f"An {r.kind} over several axes that do not merge has no schedule.", "Reduce one axis.")
    name, best = Name(running.name), Name(running.best)
    value_name = w.names.fresh("best")
    here: Expr = Name(value_name)
    at = w.vars[r.axes[0]]
    better = w.names.fresh("better")
    if _by_lanes(w, r):
        here = w.named(arg, "candidates").tree
    elif tiled:
        candidates = w.named(arg, "candidates")
        word = "reduce_max" if r.kind == "argmax" else "reduce_min"
        w.body.append(let(value_name, w.reduce_call(r, candidates, word)))
        at = plus(w.reduce_call(r, candidates), at)
    else:
        w.body.append(let(value_name, arg.tree))
    beats = Binary(">" if r.kind == "argmax" else "<", here, best)
    first = call("logical_and", call("isnan", here), call("logical_not", call("isnan", best)))
    w.body.append(let(better, call("logical_or", beats, first)))
    w.body.append(let(running.name, call("where", Name(better), at, name)))
    w.body.append(let(running.best, call("where", Name(better), here, best)))


# two reductions of a long row in one read of it, where the second is relative to the result of the first
# - The squares about the mean: each lane keeps the mean of its elements so far and the squares about that (Welford,
#   1962), and the lanes' results are combined at the end (Chan, Golub and LeVeque, 1979).
# - The sum of exponentials below the largest element: each lane keeps its largest so far, and scales its sum down when
#   that grows (Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018).
#
# A row longer than a tile would otherwise be read once for each reduction, and once more to store.

_DTYPE = "float32"
_ZERO, _ONE = Num(0.0), Num(1.0)


@dataclass(frozen=True)
class Pair:
    """``second`` is a reduction relative to ``first``, or to a value computed from it."""

    first: Red
    second: Red

    @property
    def largest(self) -> bool:
        """Whether the pair is the largest element and the exponentials below it, not the mean and the squares about
        it."""
        return self.first.kind == "max"


def pairs(w: Writer) -> dict[int, Pair]:
    """Return the pairs that one pass over the row computes, by the id of the second reduction. Only on a GPU, where
    each pass reads a row from memory again; a CPU has it in its cache."""
    own_ids = {id(r) for r in w.k.reds} if not w.t.cached else set()
    result: dict[int, Pair] = {}
    for r in w.k.reds:
        first = first_of(r)
        if first is None or id(first) not in own_ids or any(p.first is first for p in result.values()):
            continue
        lanes = w.lane_axes(first)
        fits = w.t.lanes and w.t.core != "coreidx" and lanes == w.lane_axes(r) and lanes != w.kept(first)
        wide = first.dtype == r.dtype == first.arg.dtype == _DTYPE
        narrow = w.t.once and first.kind == "max" and first.arg.dtype in HALVES
        if fits and (wide or narrow) and first.chunk is None and r.chunk is None:
            result[id(r)] = Pair(first, r)
    return result


class RunningPair:
    """A pair in progress: :meth:`step` writes the loop's body, :meth:`finish` the statements after it."""

    def __init__(self, w: Writer, pair: Pair) -> None:
        self._w, self._pair = w, pair
        self._lanes = w.lane_axes(pair.first)
        words = ("largest", "sums") if pair.largest else ("middle", "squares", "seen")
        self._names = [w.names.fresh(f"{w.title(pair.first).split('_')[0]}_{word}") for word in words]
        starts = [identity(pair.first) if pair.largest else _ZERO, *([_ZERO] * (len(words) - 1))]
        row = w.scopes[0].body
        #: if a tile has several rows of lanes, each lane first combines its elements: one exponential scales its sum
        #: for all
        self._row = [Name(w.t.blocks[self._lanes[-1]])] if w.t.parts > 1 else []
        shape = self._row or w.shape(self._lanes)
        for name, start in zip(self._names, starts, strict=True):
            row.append(let(name, filled(shape, start, DTYPES[_DTYPE])))

    def step(self) -> None:
        """Write the loop's body: update the running results by one tile."""
        (self._exponentials if self._pair.largest else self._moments)()

    def _exponentials(self) -> None:
        w = self._w
        top, sums = self._names
        x = w.named(w.spread(w.masked(self._pair.first), self._lanes), "element").tree
        grown, base = w.names.fresh("grown"), w.names.fresh("base")
        lowest = identity(self._pair.first)
        below: Expr = Name(base)
        if self._row:
            parts = w.names.fresh("parts")
            # a lane's elements lie side by side if it reads them as one vector
            shape: list[Expr] = [*self._row, Num(w.t.parts)] if w.t.vector else [Num(w.t.parts), *self._row]
            w.body.append(let(parts, call("reshape", x, listed(shape))))
            along = (tree.Slice(), tree.NewAxis()) if w.t.vector else (tree.NewAxis(), tree.Slice())
            x, below = Name(parts), tree.Subscript(base, along)
        w.body.append(let(grown, call("max", Name(top), self._joined("max", x))))
        # in a lane with only -inf so far the exponentials are 0; an infinity held finite in the formula stays infinite
        size: Expr = Name(grown)
        if held_finite(below_of(self._pair.second)):
            size, lowest = call("abs", size), Num(math.inf)
        w.body.append(let(base, call("where", Binary("==", size, lowest), _ZERO, Name(grown))))
        rescaled = Binary("*", Name(sums), call("exp", Binary("-", Name(top), Name(base))))
        w.body.append(let(sums, Binary("+", rescaled, self._joined("sum", call("exp", Binary("-", x, below))))))
        w.body.append(let(top, Name(grown)))

    def _joined(self, kind: str, parts: Expr) -> Expr:
        return call(f"reduce_{kind}", parts, axis=Num(int(self._w.t.vector > 0))) if self._row else parts

    def _moments(self) -> None:
        w, r = self._w, self._pair.first
        middle, squares, count_name = self._names
        x = w.spread(w.value_of(r.arg), self._lanes).tree
        away, step = w.names.fresh("away"), w.names.fresh("step")
        inside = w.inside(r, self._lanes)
        w.body.append(let(away, _where(inside, Binary("-", x, Name(middle)), _ZERO)))
        w.body.append(let(count_name, Binary("+", Name(count_name), _where(inside, _ONE, _ZERO))))
        count = call("max", Name(count_name), _ONE) if inside else Name(count_name)
        w.body.append(let(step, Binary("/", Name(away), count)))
        w.body.append(let(middle, Binary("+", Name(middle), Name(step))))
        more = Binary("*", Name(away), Binary("-", Name(away), Name(step)))
        w.body.append(let(squares, Binary("+", Name(squares), more)))

    def finish(self) -> None:
        """Write the statements after the loop: combine the lanes."""
        (self._from_largest if self._pair.largest else self._from_moments)()

    def _from_largest(self) -> None:
        top, sums = self._names
        self._reduced(self._pair.first, Name(top))
        scale = call("exp", Binary("-", Name(top), self._spread(self._w.value_of(below_of(self._pair.second)))))
        self._reduced(self._pair.second, Binary("*", Name(sums), scale))

    def _from_moments(self) -> None:
        w = self._w
        middle, squares, count_name = self._names
        self._reduced(self._pair.first, Binary("*", Name(middle), Name(count_name)))
        about = mean_of_squares_about(self._pair.second)
        assert about is not None
        distance = w.names.fresh("apart")
        mean = self._spread(w.value_of(about[1]))
        w.scopes[0].body.append(let(distance, Binary("-", Name(middle), mean)))
        moved = Binary("*", Name(count_name), Binary("*", Name(distance), Name(distance)))
        self._reduced(self._pair.second, Binary("+", Name(squares), moved))

    def _reduced(self, r: Red, of: tree.Expr) -> Value:
        w, row = self._w, self._w.scopes[0]
        name = w.names.fresh(w.title(r))
        row.body.append(let(name, w.reduce_call(r, Value(of, self._lanes))))
        return w.known_as(r, row, Value(Name(name), w.kept(r)))

    def _spread(self, value: Value) -> tree.Expr:
        return self._w.spread(value, self._lanes).tree


def _where(inside: tree.Expr | None, value: tree.Expr, other: tree.Expr) -> tree.Expr:
    return value if inside is None else call("where", inside, value, other)
