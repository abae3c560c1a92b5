"""The memory of a kernel: bytes of tiles that are live at one time, and bytes that a cache does not hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import NamedTuple

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
    return most_alive(body, lambda tile: elements(tile.shape, env) * tile.dtype.bytes).size


class Side(NamedTuple):
    """The reads or the writes of one tensor."""

    tensor: str
    is_write: bool


#: bytes of each side of each tensor
Bytes = dict[Side, float]


class Pick(NamedTuple):
    """A gather or scatter: the box around its possible elements, and the shape of its indices."""

    region: Region
    shape: tuple[IntExpr, ...]
    is_write: bool
    is_read: bool


class _Access(NamedTuple):
    """A region that is read or written, and the iterations of the loops around it."""

    region: Region
    is_write: bool
    ranges: Mapping[str, range]


class Traffic:
    """Bytes from the slowest level, with a last cache of ``capacity`` bytes: data that fits into it is fetched once."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity

    def block(self, body: Sequence[Statement], env: Mapping[str, int]) -> Bytes:
        """Return the bytes of one execution of ``body`` with outer loops fixed in ``env``."""
        unique = self.unique(body, env)
        if sum(unique.values()) <= self.capacity:
            return unique
        total: Bytes = {}
        for stmt in body:
            for side, count in self._statement(stmt, env).items():
                total[side] = total.get(side, 0.0) + count
        return total

    def _statement(self, stmt: Statement, env: Mapping[str, int]) -> Bytes:
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
        one_iteration = self.block(stmt.body, inner)
        resident = sum(self.unique(stmt.body, inner).values()) <= self.capacity
        result = {}
        for side, count in one_iteration.items():
            # data that an iteration leaves in the cache is reused; else everything is fetched again
            fetched_each_time = count * len(turns)
            pick = min if resident else max
            result[side] = pick(fetched_each_time, whole[side])
        return result

    def unique(self, body: Sequence[Statement], env: Mapping[str, int]) -> Bytes:
        """Return the distinct bytes that ``body`` accesses: the boxes around its regions."""
        boxes: Bytes = {}
        #: side -> index of a region -> what it covers
        regions_of: dict[Side, dict[tuple[Point | Range, ...], tuple[Covered, ...]]] = {}
        for region, is_write, ranges in _regions(body, env, {}):
            covered = [
                _covered(item, region.tensor.shape[dim].evaluate(env), env, ranges)
                for dim, item in enumerate(region.index)
            ]
            if covered:
                # memory moves whole lines, with all elements between two elements of one line
                covered[-1] = covered[-1].widened(LINE_BYTES // region.tensor.dtype.bytes)
            side = Side(region.tensor.name, is_write)
            regions = regions_of.setdefault(side, {})
            regions[region.index] = tuple(covered)
            boxes[side] = _distinct_elements(tuple(regions.values())) * region.tensor.dtype.bytes
        for region, is_write, touched in _picked(body, env, {}, 1):
            side = Side(region.tensor.name, is_write)
            boxes[side] = max(boxes.get(side, 0.0), touched * region.tensor.dtype.bytes)
        return boxes


def _regions(body: Sequence[Statement], env: Mapping[str, int], ranges: Mapping[str, range]) -> Iterator[_Access]:
    for stmt in body:
        for region, touch in stmt.touches:
            yield _Access(region, touch is not Touch.READ, ranges)
            if touch is Touch.ADD:
                yield _Access(region, False, ranges)
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
            for region, shape, is_write, is_read in picks(stmt):
                sizes = [d.evaluate(env) for d in region.tensor.shape]
                whole = prod(_covered(i, n, env, ranges).count for i, n in zip(region.index, sizes, strict=True))
                touched = min(whole, times * elements(shape, env))
                if is_write:
                    yield region, True, touched
                if is_read:
                    yield region, False, touched


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


def _distinct_elements(regions: Sequence[tuple[Covered, ...]]) -> float:
    """Return the distinct elements of several regions of one tensor: at most the sum of all, and at most the box around
    them."""
    each = sum(prod(c.count for c in region) for region in regions)
    if len(regions) == 1:
        return each
    touched = [region for region in regions if all(c.width for c in region)]
    if not touched:
        return 0.0
    box = prod(max(c.high for c in dim) - min(c.low for c in dim) for dim in zip(*touched, strict=True))
    return float(min(each, box))


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


def by_tensor(sides: Mapping[Side, float]) -> dict[str, float]:
    """Return the bytes by tensor, reads and writes added."""
    total: dict[str, float] = {}
    for (name, _), count in sides.items():
        total[name] = total.get(name, 0.0) + count
    return total


# -- traffic at indices that are tiles: one element for each index, at most the whole tensor ---------------------------


def picks(stmt: Statement) -> Iterator[Pick]:
    """Yield each gather and scatter of ``stmt``."""
    for value in gathers(stmt):
        tensor, items = value.attr("tensor"), value.attr("items")
        assert isinstance(tensor, Tensor) and isinstance(items, tuple)
        yield Pick(box(tensor, items), value.type.shape, is_write=False, is_read=True)
    if isinstance(stmt, Scatter):
        yield Pick(box(stmt.tensor, stmt.items), stmt.shape, is_write=True, is_read=stmt.add)
