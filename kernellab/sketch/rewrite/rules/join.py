"""Fuses launches with different grids, also across reductions and sorts.

The consumer uses the producer's tile of rows: iterations over single rows become its lanes, another tile of the same
rows becomes that tile, and loops that the producer's grid does not have run inside. Lanes are independent, and the rows
are the same, so each element is computed from the same values as before."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from kernellab.sketch.rewrite import edit
from kernellab.sketch.rewrite.record import Change, Setting
from kernellab.sketch.rewrite.rules.fuse import fused, same_grid
from kernellab.sketch.rewrite.rules.lanes import lifted
from kernellab.sketch.syntax import tree


def join(setting: Setting) -> Iterator[Change]:
    """Fuse two consecutive launches over the same rows in different tiles."""
    plain = dict(edit.launches(setting.tree))
    for number, first in plain.items():
        second = plain.get(number + 1)
        if second is None or same_grid(first, second) is not None:
            continue
        aligned = _aligned(first, second)
        if aligned is None:
            continue
        joined = _joined(*aligned, setting.tree.sketches[number + 2 :])
        if joined is not None:
            why = f"took {second.name} into {first.name}, a tile of its rows at a time"
            yield edit.merged(setting.tree, number, joined), why


def _joined(first: tree.Sketch, second: tree.Sketch, later: tuple[tree.Sketch, ...]) -> tree.Sketch | None:
    change = same_grid(first, second)
    return None if change is None else fused(first, edit.rename(second, change), later, by_rows=True)


def _aligned(first: tree.Sketch, second: tree.Sketch) -> tuple[tree.Sketch, tree.Sketch] | None:
    """Return both over one grid; None if that is not possible."""
    first_grid, second_grid = edit.grid(first), edit.grid(second)
    count = len(first_grid)
    if not count or len(second_grid) < count or any(loop.pinned for loop in (*first_grid, *second_grid)):
        return None
    for loop in second_grid[count:]:
        second = _replaced(second, loop, edit.sequential(loop))
    for loop, other in zip(first_grid, edit.grid(second), strict=True):
        (start, stop, step), (other_start, other_stop, other_step) = edit.bounds(loop), edit.bounds(other)
        if start != edit.number(0) or other_start != start or stop != other_stop:
            return None
        if step == other_step:
            continue
        if edit.number(1) in (step, other_step):
            narrow_second = other_step == edit.number(1)
            wide = _wider(second, other, step, first) if narrow_second else _wider(first, loop, other_step, second)
            if wide is None:
                return None
            first, second = (first, wide) if narrow_second else (wide, second)
        elif isinstance(other_step, tree.Name) and _divides_extent(first, loop):
            # the number of rows of a tile may be chosen freely; one that divides all rows reads no padding
            second = _without_constexpr(edit.rename(second, {other_step.id: step}), other_step.id)
        else:
            return None
    return first, second


def _wider(sketch: tree.Sketch, loop: tree.For, step: tree.Expr, other: tree.Sketch) -> tree.Sketch | None:
    """Return ``sketch`` with ``step`` iterations of ``loop`` as the lanes of one tile; ``other`` declares the step."""
    if not isinstance(step, tree.Name) or step.id in edit.used_names(sketch):
        return None
    const = edit.consts(other).get(step.id)
    wide = lifted(sketch, loop, step, edit.integers((*const.choices, const.value or edit.number(0))) if const else [])
    if wide is None or const is None:
        return None
    start, stop, _ = edit.bounds(loop)
    widened = _replaced(sketch, loop, replace(loop, range=(start, stop, step), body=wide))
    value = edit.value_of(step, {const.name: const})
    return edit.declare(widened, const.name, value, edit.integers(const.choices)) if value else None


def _divides_extent(sketch: tree.Sketch, loop: tree.For) -> bool:
    """Does each choice of the loop's step divide its extent?"""
    _, stop, step = edit.bounds(loop)
    constants = edit.consts(sketch)
    extent = edit.value_of(stop, {})
    if not isinstance(step, tree.Name) or extent is None or step.id not in constants:
        return False
    const = constants[step.id]
    values = edit.integers((*const.choices, const.value or edit.number(0)))
    return bool(values) and all(value > 0 and extent % value == 0 for value in values)


def _without_constexpr(sketch: tree.Sketch, name: str) -> tree.Sketch:
    lines = (
        replace(d, items=tuple(i for i in d.items if not (isinstance(i, tree.ConstDecl) and i.name == name)))
        for d in sketch.declarations
    )
    return replace(sketch, declarations=tuple(d for d in lines if d.items))


def _replaced(sketch: tree.Sketch, loop: tree.For, new: tree.For) -> tree.Sketch:
    return replace(sketch, body=edit.instead(sketch.body, loop, new))
