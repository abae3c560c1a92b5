"""Reorders, splits and moves loops: what changes is which program runs an iteration, and when."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from kernellab.sketch.check.split import cannot_split
from kernellab.sketch.rewrite import edit
from kernellab.sketch.rewrite.record import Change, Setting
from kernellab.sketch.syntax import tree
from kernellab.sketch.syntax.walk import nodes, written

#: numbers of tiles of one parallel iteration; chosen, not measured
_CHUNKS = (2, 4, 8, 16)
#: unroll factors; chosen, not measured
_REPEATS = (2, 4, 8)


def interchange(setting: Setting) -> Iterator[Change]:
    """Exchange two perfectly nested loops; hints keep their positions.

    Parallel iterations run in any order by definition. Sequential loops are exchanged if carried tiles combine
    associatively and nothing is written to memory, so that only rounding differs."""
    for place in edit.places(setting.tree):
        outer = place.loop
        inner = outer.body[-1] if outer.body else None
        if not isinstance(inner, tree.For) or edit.is_parallel(outer) != edit.is_parallel(inner):
            continue
        if edit.mentions((inner.range, outer.body[:-1]), outer.var) or edit.mentions(outer.range, inner.var):
            continue
        if not edit.is_parallel(outer) and (len(outer.body) != 1 or not _reorders(setting, place)):
            continue
        swapped = replace(inner, var=outer.var, range=outer.range)
        changed = replace(outer, var=inner.var, range=inner.range, body=(*outer.body[:-1], swapped))
        why = f"interchanged the loops over {outer.var} and {inner.var} in {_launch(setting, place)}"
        yield place.put(changed), why


def _reorders(setting: Setting, place: edit.Place) -> bool:
    """May the loop's iterations run in another order, so that only rounding differs?"""
    loop = setting.resolved(place.launch, place.loop)
    return loop is not None and not writes_memory(place.loop) and not cannot_split(loop)


def writes_memory(loop: tree.For) -> bool:
    """Does the body of ``loop`` write to a tensor?"""
    return bool(_memory_writes(loop.body))


def split(setting: Setting) -> Iterator[Change]:
    """Split the innermost parallel loop: each parallel iteration computes several tiles in sequence."""
    for number, sketch in edit.launches(setting.tree):
        loops = edit.grid(sketch)
        if not loops or loops[-1].pinned:
            continue
        loop = loops[-1]
        used = edit.used_names(setting.tree)
        start, stop, step = edit.bounds(loop)
        trips = edit.trips(sketch, loop)
        options = [c for c in _CHUNKS if trips is None or c <= trips]
        if not options:
            continue
        chunk, part = edit.fresh("CHUNK", used), edit.fresh(f"{loop.var}_part", used)
        size = edit.binary("*", step, edit.name(chunk))
        end = tree.Call("min", (edit.binary("+", edit.name(part), size), stop))
        inner = replace(edit.sequential(loop), range=_range(edit.name(part), end, step), comments=tree.NO_COMMENTS)
        outer = replace(loop, var=part, range=(start, stop, size), body=(inner,))
        declared = edit.declare_tunable(_with_innermost(sketch, outer), chunk, options)
        why = f"split the loop over {loop.var} in {sketch.name} into parts of {chunk} tiles, done one after another"
        yield edit.with_launch(setting.tree, number, declared), why


def placement(setting: Setting) -> Iterator[Change]:
    """Make a parallel loop sequential inside the program, or a sequential loop without carried tiles parallel."""
    for place in edit.places(setting.tree):
        where = _launch(setting, place)
        loop = place.loop
        if edit.is_parallel(loop):
            innermost = edit.grid(setting.tree.sketches[place.launch])[-1]
            if loop == innermost and place.around:
                changed = place.put(edit.sequential(loop))
                yield changed, f"moved the loop over {loop.var} in {where} from the grid into each program"
        elif _independent(place):
            outer_axis = edit.grid_axis(place.around[-1]) if place.around else ""
            hint = edit.parallel_hint(outer_axis or ("grididx" if setting.gpu else "coreidx"))
            # statements before it are computed in each iteration: their loops are then inside this one
            var = edit.fresh(loop.var, {n.var for n in nodes(place.body[: place.at]) if isinstance(n, tree.For)})
            moved = edit.rename(edit.unhinted(loop, "pipeline", "unroll"), {loop.var: tree.Name(var)})
            changed = place.put(replace(moved, hints=(hint,)))
            yield changed, f"made the loop over {loop.var} in {where} part of the grid"


def _independent(place: edit.Place) -> bool:
    """May the iterations run in parallel: last in the grid, nothing carried, and disjoint writes to tensors?"""
    loop, before = place.loop, place.body[: place.at]
    if place.at + 1 != len(place.body) or not all(edit.is_parallel(outer) for outer in place.around):
        return False
    if _memory_writes(before) or not writes_memory(loop):
        return False
    carried = {w for n in nodes(before) for w in written(n)} & {w for n in nodes(loop.body) for w in written(n)}
    loads = {edit.source_tensor(n) for n in nodes(loop.body) if isinstance(n, tree.Move)}
    return not carried and all(
        s.op == "store"
        and isinstance(s.dest, tree.Subscript)
        and _is_tile_of(s.dest, loop)
        and s.dest.name not in loads
        for s in _memory_writes(loop.body)
    )


def _memory_writes(body: edit.Body) -> list[tree.Move]:
    return [n for n in nodes(body) if isinstance(n, tree.Move) and n.op not in ("load", "gather")]


def _is_tile_of(region: tree.Expr, loop: tree.For) -> bool:
    """Does the loop variable move exactly one index of ``region``, by the length that it covers?"""
    step = edit.bounds(loop).step
    items = region.items if isinstance(region, tree.Subscript) else ()
    moving = [i for i in items if edit.mentions(i, loop.var)]
    var = tree.Name(loop.var)
    tile = tree.Slice(var, tree.Binary("+", var, step))
    return len(moving) == 1 and (moving[0] == tile or (moving[0] == var and step == edit.number(1)))


def unroll(setting: Setting) -> Iterator[Change]:
    """Make the compiler unroll a sequential loop, or stop doing so."""
    for place in edit.places(setting.tree):
        loop = place.loop
        if edit.is_parallel(loop):
            continue
        words, where = edit.words(loop), _launch(setting, place)
        trips = edit.trips(setting.tree.sketches[place.launch], loop)
        for times in _REPEATS:
            if words.get("unroll") != edit.number(times) and (trips is None or trips >= times):
                changed = place.put(edit.hinted(loop, "unroll", edit.number(times)))
                yield changed, f"unrolled the loop over {loop.var} in {where} {times} times"
        if "unroll" in words:
            yield place.put(edit.unhinted(loop, "unroll")), f"no longer unrolls the loop over {loop.var} in {where}"


def _range(start: tree.Expr, stop: tree.Expr, step: tree.Expr) -> tuple[tree.Expr, ...]:
    return (start, stop) if step == edit.number(1) else (start, stop, step)


def _with_innermost(sketch: tree.Sketch, loop: tree.For) -> tree.Sketch:
    """Return ``sketch`` with ``loop`` in place of its innermost parallel loop."""

    def inner(body: edit.Body) -> edit.Body:
        outer = body[-1]
        assert isinstance(outer, tree.For)
        last = outer.body[-1] if outer.body else None
        if isinstance(last, tree.For) and edit.is_parallel(last):
            return (*body[:-1], replace(outer, body=inner(outer.body)))
        return (*body[:-1], loop)

    return replace(sketch, body=inner(sketch.body))


def _launch(setting: Setting, place: edit.Place) -> str:
    """Return the name of the loop's launch."""
    return setting.tree.sketches[place.launch].name
