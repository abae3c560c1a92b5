"""The memory of a kernel: bytes of tiles that are live at one time, and bytes that a cache does not hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from kernellab.sketch.check.gather import box
from kernellab.sketch.program.alive import most_alive
from kernellab.sketch.program.ints import IntExpr, elements
from kernellab.sketch.program.program import (
    If,
    Loop,
    Point,
    Range,
    Region,
    Scatter,
    Statement,
    Tensor,
    Touch,
)
from kernellab.sketch.program.walk import gathers

#: a cache line, and the sector of a GPU's memory twice
LINE_BYTES = 64


def footprint(body: Sequence[Statement], env: Mapping[str, int]) -> int:
    """Return the largest bytes of tiles that are live at one time."""
    return most_alive(body, lambda tile: elements(tile.shape, env) * tile.dtype.bytes)[0]


class Traffic:
    """Bytes from the slowest level, with a last cache of ``capacity`` bytes: data that fits into it is fetched once."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity

    def block(self, body: Sequence[Statement], env: Mapping[str, int]) -> dict[tuple[str, bool], float]:
        """Return the bytes by (tensor, is it written) of one execution of ``body`` with outer loops fixed in
        ``env``."""
        unique = self.unique(body, env)
        if sum(unique.values()) <= self.capacity:
            return unique
        total: dict[tuple[str, bool], float] = {}
        for stmt in body:
            for key, count in self._statement(stmt, env).items():
                total[key] = total.get(key, 0.0) + count
        return total

    def _statement(self, stmt: Statement, env: Mapping[str, int]) -> dict[tuple[str, bool], float]:
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
            # data that an iteration leaves in the cache is reused; else everything is fetched again
            again = count * len(turns)
            result[key] = min(again, whole[key]) if resident else max(again, whole[key])
        return result

    def unique(self, body: Sequence[Statement], env: Mapping[str, int]) -> dict[tuple[str, bool], float]:
        """Return the distinct bytes that ``body`` accesses, by (tensor, is it written): the box around its regions."""
        boxes: dict[tuple[str, bool], float] = {}
        apart: dict[tuple[str, bool], dict[tuple[Point | Range, ...], tuple[Covered, ...]]] = {}
        for region, is_write, ranges in _regions(body, env, {}):
            covered = [
                _covered(item, region.tensor.shape[dim].evaluate(env), env, ranges)
                for dim, item in enumerate(region.index)
            ]
            if covered:
                # memory moves whole lines, with all elements between two elements of one line
                covered[-1] = covered[-1].widened(LINE_BYTES // region.tensor.dtype.bytes)
            key = (region.tensor.name, is_write)
            regions = apart.setdefault(key, {})
            regions[region.index] = tuple(covered)
            boxes[key] = _together(tuple(regions.values())) * region.tensor.dtype.bytes
        for region, is_write, touched in _picked(body, env, {}, 1):
            key = (region.tensor.name, is_write)
            boxes[key] = max(boxes.get(key, 0.0), touched * region.tensor.dtype.bytes)
        return boxes


def _regions(
    body: Sequence[Statement], env: Mapping[str, int], ranges: Mapping[str, range]
) -> Iterator[tuple[Region, bool, Mapping[str, range]]]:
    for stmt in body:
        for region, touch in stmt.touches:
            yield region, touch is not Touch.READ, ranges
            if touch is Touch.ADD:
                yield region, False, ranges
        if isinstance(stmt, If):
            yield from _regions((*stmt.then, *stmt.orelse), env, ranges)
        elif isinstance(stmt, Loop):
            turns = _widest(stmt, env, ranges)
            if turns:
                yield from _regions(stmt.body, {**env, stmt.var: turns[0]}, {**ranges, stmt.var: turns})


def _picked(
    body: Sequence[Statement], env: Mapping[str, int], ranges: Mapping[str, range], times: int
) -> Iterator[tuple[Region, bool, float]]:
    """Yield boxes of accesses at tile indices, whether they are written, and the most distinct elements accessed
    there."""
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
                whole = prod(_covered(i, n, env, ranges).count for i, n in zip(region.index, sizes, strict=True))
                for way in ([True] if written else []) + ([False] if read else []):
                    yield region, way, min(whole, times * elements(shape, env))


def _widest(loop: Loop, env: Mapping[str, int], ranges: Mapping[str, range]) -> range:
    """Return the loop's iterations over all iterations of the loops around it."""
    low = min(_corners(loop.start, env, ranges))
    high = max(_corners(loop.stop, env, ranges))
    return range(low, high, max(1, loop.step.evaluate(env)))


@dataclass(frozen=True)
class Covered:
    """One dimension of a region: the number of distinct accessed elements, and of elements from the first to the
    last."""

    count: float
    low: int
    high: int

    @property
    def width(self) -> int:
        return max(0, self.high - self.low)

    def widened(self, line: int) -> Covered:
        """Return it with the other elements of each line of ``line`` elements."""
        return Covered(min(self.width, self.count * max(1, line)), self.low, self.high)


def _together(regions: Sequence[tuple[Covered, ...]]) -> float:
    """Return the distinct elements of several regions of one tensor: at most the sum of all, and at most the box around
    them."""
    each = sum(prod(c.count for c in region) for region in regions)
    if len(regions) == 1:
        return each
    touched = [region for region in regions if all(c.width for c in region)]
    box = (
        prod(max(c.high for c in dim) - min(c.low for c in dim) for dim in zip(*touched, strict=True)) if touched else 0
    )
    return min(each, box)


def _covered(item: Point | Range, size: int, env: Mapping[str, int], ranges: Mapping[str, range]) -> Covered:
    """Return the accessed part of one dimension while the loops of ``ranges`` run."""
    start = item.at if isinstance(item, Point) else item.start
    extent = 1 if isinstance(item, Point) else item.extent.evaluate(env)
    step = 1 if isinstance(item, Point) else max(1, item.step.evaluate(env))
    corners = _corners(start, env, ranges)
    low, high = max(0, min(corners)), min(size, max(corners) + (extent - 1) * step + 1)
    turns = prod(len(ranges[v]) for v in start.loop_vars() if v in ranges)
    return Covered(max(0, min(high - low, turns * extent)), low, high)


def _corners(expr: IntExpr, env: Mapping[str, int], ranges: Mapping[str, range]) -> list[int]:
    moving = sorted(v for v in expr.loop_vars() if v in ranges)
    ends = [(ranges[v][0], ranges[v][-1]) for v in moving]
    return [expr.evaluate({**env, **dict(zip(moving, corner, strict=True))}) for corner in product(*ends)]


def by_tensor(sides: Mapping[tuple[str, bool], float]) -> dict[str, float]:
    """Return the bytes by tensor, reads and writes added."""
    total: dict[str, float] = {}
    for (name, _), count in sides.items():
        total[name] = total.get(name, 0.0) + count
    return total


# -- traffic at indices that are tiles: one element for each index, at most the whole tensor ---------------------------


def picks(stmt: Statement) -> Iterator[tuple[Region, tuple[IntExpr, ...], bool, bool]]:
    """Yield each gather and scatter of ``stmt``: the box around its possible elements, its shape, is it written, is it
    read."""
    for value in gathers(stmt):
        tensor, items = value.attr("tensor"), value.attr("items")
        assert isinstance(tensor, Tensor) and isinstance(items, tuple)
        yield box(tensor, items), value.type.shape, False, True
    if isinstance(stmt, Scatter):
        yield box(stmt.tensor, stmt.items), stmt.shape, True, stmt.add
