"""Launches of pointwise work and reductions, in passes over the reduced axes.

A reduction that needs an earlier one runs in a later pass, unless the whole row is one tile or one read gives both.
Values that a loop does not change are computed outside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kernellab.designer.emit.loops import begin, grid, loop
from kernellab.designer.emit.nodes import ZERO, Value, call, compute_dtype, filled, joined, let, plus
from kernellab.designer.emit.online import Pair, Running, pairs
from kernellab.designer.emit.stores import store_all
from kernellab.designer.emit.writer import Writer, identity
from kernellab.designer.ir.dtypes import DTYPES
from kernellab.designer.ir.expr import Axis, Op, Red, walk
from kernellab.designer.ir.normal import Output
from kernellab.errors import DesignError
from kernellab.sketch.syntax.tree import Binary, Expr, Name, Num, Stmt


def passes(w: Writer) -> tuple[Stmt, ...]:
    """The statements of a launch that reduces, or does pointwise work alone."""
    par, red = begin(w)
    write_passes(w, [a for a in red if a not in w.t.whole])
    return grid(w, par, w.scopes[0].body)


def copy(w: Writer) -> tuple[Stmt, ...]:
    """The statements of a launch that stores what windows want side by side, read along the source's rows."""
    letters = dict.fromkeys(w.k.red, "k") | {w.k.stored_axes[-1]: "c"}
    par, red = begin(w, letters)
    taps = (ix.win for e in w.k.loads for ix in e.index if ix.win is not None)
    w.at_tap = {tap: w.vars[tap.k] for tap in taps if tap.k is not None}
    write_passes(w, [a for a in red if a not in w.t.whole])
    return grid(w, par, w.scopes[0].body)


def write_passes(w: Writer, loops: list[Axis]) -> None:
    """Each pass runs ``loops``; what varies along the reduced axes is stored in one more."""
    together = pairs(w) if loops else {}
    levels = _levels(w, together)
    for level in range(max(levels.values(), default=-1) + 1):
        group = [r for r in w.k.reds if levels[id(r)] == level]
        w.pads_for(group, loops)
        if loops:
            _pass(w, group, loops, together)
        else:
            for r in group:
                w.define(r, w.scopes[0], w.reduced(r), w.title(r))
            _forget_cheap(w)
    w.pads = dict(w.divisors)
    tail = [o for o in w.k.outs if _varies(w, o)]
    if tail and loops:
        loop(w, loops, lambda: store_all(w, tail))
    else:
        store_all(w, tail)
    store_all(w, (o for o in w.k.outs if o not in tail))


def _forget_cheap(w: Writer) -> None:
    """On a CPU one addition costs less than a row of results kept for the next pass: make it again there."""
    if w.t.core != "coreidx":
        return
    known = w.scopes[0].known
    for e in w.keep:
        wide = isinstance(e, Op) and e.op in ("add", "sub", "mul") and bool(w.free(e) & w.k.red)
        if wide and not any(isinstance(a, Op) and w.free(a) & w.k.red for a in e.args):  # type: ignore[union-attr]
            known.pop(id(e), None)


def _varies(w: Writer, o: Output) -> bool:
    axes = {leaf for ix in o.index for leaf in ix.leaves()}
    return bool(axes & w.inner)


def _levels(w: Writer, together: Mapping[int, Pair]) -> dict[int, int]:
    """The pass that each reduction runs in; the second of a pair runs with the first."""
    levels: dict[int, int] = {}
    for r in _ordered(w):
        if id(r) in together:
            levels[id(r)] = levels[id(together[id(r)].first)]
            continue
        inside = [x for x in walk(r, inside=True) if isinstance(x, Red) and x is not r and id(x) in levels]
        levels[id(r)] = 1 + max((levels[id(x)] for x in inside), default=-1)
    return levels


def _ordered(w: Writer) -> list[Red]:
    mine = {id(r): r for r in w.k.reds}
    order: list[Red] = []
    seen: dict[int, object] = {}
    for r in w.k.reds:
        order += [x for x in walk(r, seen) if id(x) in mine]  # type: ignore[misc]
    return order


def _pass(w: Writer, group: list[Red], loops: list[Axis], together: Mapping[int, Pair]) -> None:
    """One pass: running results before the loop, what they come to behind it."""
    row = w.scopes[0]
    two = [together[id(r)] for r in group if id(r) in together]
    group = [r for r in group if not any(r is p.first or r is p.second for p in two)]
    found_with = _found_with(w, group)
    running = [_started(w, r) for r in group if r not in found_with.values()]
    online = [Running(w, pair) for pair in two]

    def body() -> None:
        for each in running:
            _accumulate(w, each)
        for pair in online:
            pair.step()

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
    """A reduction on its way: the name of its result so far, and of the value found there (argmax, argmin)."""

    of: Red
    name: str
    best: str


def _by_lanes(w: Writer, r: Red) -> bool:
    kinds = ("sum", "max", "min", "prod", "argmax", "argmin")
    return w.t.lanes and r.kind in kinds and w.lane_axes(r) != w.kept(r)


def _found_with(w: Writer, group: list[Red]) -> dict[int, Red]:
    """The largest or smallest values that the search for their places finds, too."""
    searches = [r for r in group if r.kind.startswith("arg") and _by_lanes(w, r)]
    pairs = ((s, r) for s in searches for r in group if r.kind == s.kind[3:] and r.arg is s.arg)
    return {id(s): r for s, r in pairs}


def _first_of_lanes(w: Writer, running: _Running, value: Red | None) -> str:
    """The first place of the best value, of every lane's own best and where that was met; ``value``: that best."""
    r, best = running.of, Name(running.best)
    row, lanes, axis = w.scopes[0], w.lane_axes(r), r.axes[0]
    word = "reduce_max" if r.kind == "argmax" else "reduce_min"
    last, final = w.names.fresh(f"{running.best}2"), w.names.fresh(w.title(r))
    row.body.append(let(last, w.reduce_call(r, Value(best, lanes), word)))
    if value is not None:
        w.known_as(value, row, Value(Name(last), w.kept(r)))
    equal = Binary("==", best, w.spread(Value(Name(last), w.kept(r)), lanes).tree)
    places = w.spread(Value(call("arange", w.extent(axis)), (axis,)), lanes).tree
    met = call("logical_or", equal, call("isnan", best))
    chosen = call("where", met, Binary("+", Name(running.name), places), Num(2**31 - 1))
    row.body.append(let(final, w.reduce_call(r, Value(chosen, lanes), "reduce_min")))
    return final


def _started(w: Writer, r: Red) -> _Running:
    """A reduction before its loop: its identity, in every lane where lanes keep their own."""
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
    # a narrow place leaves registers for the elements
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
    """Keeps the best value and where it was first; a NaN beats everything, once."""
    r = running.of
    if len(r.axes) != 1:
        raise DesignError(f"An {r.kind} over several axes that do not merge has no schedule.", "Reduce one axis.")
    name, best = Name(running.name), Name(running.best)
    found = w.names.fresh("best")
    here: Expr = Name(found)
    at = w.vars[r.axes[0]]
    better = w.names.fresh("better")
    if _by_lanes(w, r):
        here = w.named(arg, "candidates").tree
    elif tiled:
        named = w.named(arg, "candidates")
        word = "reduce_max" if r.kind == "argmax" else "reduce_min"
        w.body.append(let(found, w.reduce_call(r, named, word)))
        at = plus(w.reduce_call(r, named), at)
    else:
        w.body.append(let(found, arg.tree))
    beats = Binary(">" if r.kind == "argmax" else "<", here, best)
    first = call("logical_and", call("isnan", here), call("logical_not", call("isnan", best)))
    w.body.append(let(better, call("logical_or", beats, first)))
    w.body.append(let(running.name, call("where", Name(better), at, name)))
    w.body.append(let(running.best, call("where", Name(better), here, best)))
