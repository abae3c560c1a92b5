"""Launches of pointwise work and reductions, in passes over the reduced axes.

A reduction that depends on an earlier one runs in a later pass, unless the whole row is one tile or a single read
computes both. Loop-invariant values are computed outside the loop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kernellab.designer.emit.loops import begin, grid, loop
from kernellab.designer.emit.nodes import ZERO, Value, call, compute_dtype, filled, joined, let, plus
from kernellab.designer.emit.online import Pair, pairs, running_pair
from kernellab.designer.emit.stores import runs, store_all
from kernellab.designer.emit.writer import Writer, identity
from kernellab.designer.ir.axes import Axis
from kernellab.designer.ir.dtypes import DTYPES
from kernellab.designer.ir.expr import Op, Red, walk
from kernellab.designer.ir.normal import Output
from kernellab.errors import DesignError
from kernellab.sketch.syntax.tree import Binary, Expr, Name, Num, Stmt


def passes(w: Writer) -> tuple[Stmt, ...]:
    """Return the statements of a launch that reduces or does only pointwise work."""
    par, red = begin(w)
    write_passes(w, [a for a in red if a not in w.t.whole])
    return grid(w, par, w.scopes[0].body)


def scatter(w: Writer) -> tuple[Stmt, ...]:
    """Return the statements of a launch that writes at indices that are values; a program may add the
    rows of one index first."""
    if not w.t.added_rows:
        return passes(w)
    par, _ = begin(w)
    runs(w, next(a for a in par if a not in w.t.blocks and a not in w.k.stored_axes))
    return grid(w, par, w.scopes[0].body)


def copy(w: Writer) -> tuple[Stmt, ...]:
    """Return the statements of a launch that packs contiguously what windows read, reading along the source's rows."""
    letters = dict.fromkeys(w.k.red, "k") | {w.k.stored_axes[-1]: "c"}
    par, red = begin(w, letters)
    taps = (ix.win for e in w.k.loads for ix in e.index if ix.win is not None)
    w.tile.at_tap = {tap: w.tile.vars[tap.k] for tap in taps if tap.k is not None}
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
    """Return whether the output is stored along an axis that is a loop inside the grid."""
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
    """Return the launch's reductions, each after those that it depends on."""
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
    best_values = _best_values(w, group)
    running = [_started(w, r) for r in group if r not in best_values.values()]
    online = [running_pair(w, pair) for pair in group_pairs]

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
            name = _first_of_lanes(w, each, best_values.get(id(r)))
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
    """Return whether each lane keeps its own result until the loop ends."""
    kinds = ("sum", "max", "min", "prod", "argmax", "argmin")
    return w.t.partials_in_lanes and r.kind in kinds and w.lane_axes(r) != w.kept(r)


def _best_values(w: Writer, group: list[Red]) -> dict[int, Red]:
    """Return the extreme values that the search for their positions also computes, by the id of that search."""
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
    places = w.spread(Value(call("arange", w.tile.extent(axis)), (axis,)), lanes).tree
    matches = call("logical_or", equal, call("isnan", best))
    chosen = call("where", matches, Binary("+", Name(running.name), places), Num(2**31 - 1))
    row.body.append(let(place_name, w.reduce_call(r, Value(chosen, lanes), "reduce_min")))
    return place_name


def _started(w: Writer, r: Red) -> _Running:
    """Declare a reduction before its loop, with its identity, in every lane if each lane keeps its own result."""
    name = w.names.fresh(w.title(r))
    shape = w.tile.shape(w.lane_axes(r) if _by_lanes(w, r) else w.kept(r))
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
    """Write the update of a running result by one tile."""
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
    at = w.tile.vars[r.axes[0]]
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
