"""What may be tuned: the values of a sketch's tunables, their legal neighbours, and what the cost model says."""

from __future__ import annotations

import math
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from random import Random
from typing import TYPE_CHECKING

from kernellab.errors import KernellabError

if TYPE_CHECKING:
    from kernellab.target import Target
    from kernellab.task import Task

Value = int | float

#: most points that are looked at for a few legal new ones; chosen, not measured
_LOOKS = 512


@dataclass(frozen=True)
class Point:
    """One schedule with values for its tunables, in the order of their names."""

    sketch: str
    values: tuple[tuple[str, Value], ...]

    @classmethod
    def of(cls, sketch: str, values: Mapping[str, Value]) -> Point:
        return cls(sketch, tuple(sorted(values.items())))

    def __str__(self) -> str:
        return ", ".join(f"{name} = {value}" for name, value in self.values) or "no tunables"


@dataclass
class Space:
    """Points of one task on one target. ``fixed`` are constexprs that a person has set."""

    task: Task
    target: Target
    fixed: Mapping[str, Value] = field(default_factory=dict)
    _costs: dict[Point, float | None] = field(default_factory=dict)

    def start(self, sketch: str) -> Point:
        """Return a schedule at its defaults. Raises SketchError: it is wrong."""
        from kernellab.sketch.check import load_program

        tunables = load_program(sketch).tunables
        values = {c.name: c.value for c in tunables if c.name not in self.fixed and c.value is not None}
        return Point.of(sketch, values)

    def neighbours(self, point: Point) -> list[Point]:
        """Return the points with one tunable one step up or down; legal ones, the cheapest by the model first."""
        from kernellab.sketch.check import load_program

        choices = {c.name: sorted(c.choices) for c in load_program(point.sketch).tunables}
        points = []
        for name, value in point.values:
            options = choices[name]
            at = options.index(value) if value in options else 0
            for step in (-1, 1):
                if 0 <= at + step < len(options):
                    points.append(Point.of(point.sketch, {**dict(point.values), name: options[at + step]}))
        return self.ranked(points)

    def drawn(self, sketch: str, random: Random, count: int, seen: Container[Point]) -> list[Point]:
        """Return at most ``count`` legal points of a schedule by chance, none of ``seen``; fewer where few are left."""
        from kernellab.sketch.check import load_program

        choices = {c.name: sorted(c.choices) for c in load_program(sketch).tunables if c.choices}
        start = dict(self.start(sketch).values)
        points: list[Point] = []
        for number in islice(_shuffled(math.prod(map(len, choices.values())), random), _LOOKS):
            # the digits of a number, each in the base of one tunable's choices, are one combination
            values = dict(start)
            for name, options in choices.items():
                number, place = divmod(number, len(options))
                if name in values:
                    values[name] = options[place]
            point = Point.of(sketch, values)
            if point not in seen and point not in points and self.cost(point) is not None:
                points.append(point)
            if len(points) == count:
                break
        return points

    def ranked(self, points: list[Point]) -> list[Point]:
        """Return the legal ones, by modelled time; points of equal time stay in order."""
        costs = {p: self.cost(p) for p in points}
        return sorted((p for p in points if costs[p] is not None), key=lambda p: costs[p] or 0.0)

    def cost(self, point: Point) -> float | None:
        """Return the modelled time in ms (inf where the model has none); None for values that the chip or a person
        forbids."""
        if point not in self._costs:
            self._costs[point] = self._cost(point)
        return self._costs[point]

    def _cost(self, point: Point) -> float | None:
        from kernellab.sketch.check import load_program
        from kernellab.sketch.cost import cost
        from kernellab.sketch.program.bind import bind

        try:
            program = load_program(point.sketch)
            binding = bind(program, self.task, {**dict(point.values), **self.fixed}, self.target)
            sizes = dict(self.task.module().default_sizes())
            symbols = binding.sizes(lambda at, dim: self.task.args[at].extents(sizes)[dim])
            estimate = cost(program, {**binding.fixed, **symbols}, dict(binding.constexpr), self.target.chip)
        except (KernellabError, KeyError, IndexError):
            return None
        limit = self.target.chip.on_chip_bytes
        if limit and estimate.footprint > limit:
            return None
        return estimate.time_ms if estimate.time_ms is not None else math.inf


def _shuffled(total: int, random: Random) -> Iterator[int]:
    """Yield the numbers below ``total`` in an order of chance, without a list of them: a step that shares no factor
    with ``total`` meets each."""
    steps = (n for n in range(total // 3 + 1, total + 1) if math.gcd(n, total) == 1)
    step = random.choice(list(islice(steps, 64)))
    number = random.randrange(total)
    for _ in range(total):
        number = (number + step) % total
        yield number
