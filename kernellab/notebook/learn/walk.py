"""A search as a moving picture: a recorded space, which of its kernels a run tries, and which it holds for the best."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from kernellab.evolve.lab.curves import USUAL, contender
from kernellab.evolve.lab.pool import Pool, load
from kernellab.evolve.lab.replay import steps
from kernellab.notebook.learn.picture import frame, moving
from kernellab.notebook.saved.figures import BLUE, ORANGE
from kernellab.notebook.saved.receipt import Shown

_WIDTH, _HEIGHT, _LEFT, _TOP = 560.0, 240.0, 34.0, 8.0
_MOST_FRAMES = 24


def walk(space: str, policy: str, seed: int = 0, noise: float = 0.0) -> Shown:
    """How ``policy`` walks through a recorded space; across are the rewrites away from the first design, upwards the
    recorded speedup over it.

    Raises:
        EvolveError: there is no such space, or no such policy.
    """
    pool = load(space)
    knobs = contender(policy, USUAL).model_copy(update={"seed": seed})
    walked = [Step(*step) for step in steps(pool, knobs, noise)]
    best = pool.points[walked[-1].best].speedup
    words = (
        f"{policy} on {space}: {len(walked)} of {len(pool.points)} kernels tried, "
        f"the best {best:.2f}x the first design; the space's best is {pool.best:.2f}x."
    )
    return Shown(words, f"{_drawn(_Chart(pool), walked, words)}<br>{escape(words)}")


class Step(NamedTuple):
    """An evaluation: the kernel that was tried and the run's best after it, by their numbers in the space."""

    tried: int
    best: int


class _Chart:
    """Where a space's kernels lie in the picture, in pixels."""

    def __init__(self, pool: Pool) -> None:
        self.points = pool.points
        #: kernels that were timed
        self.timed = [number for number, point in enumerate(pool.points) if not point.reason]
        self.deepest = max(point.depth for point in pool.points) or 1
        logs = [math.log(pool.points[number].speedup) for number in self.timed]
        self._highest, self._span = max(logs), (max(logs) - min(logs)) or 1

    def y(self, speedup: float) -> float:
        return _TOP + (self._highest - math.log(speedup)) / self._span * (_HEIGHT - _TOP - 34)

    def place(self, number: int) -> tuple[float, float]:
        point = self.points[number]
        spread = (number * 0.618034 % 1 - 0.5) * 0.72  # neighbours in number lie apart
        x = _LEFT + (point.depth + 0.5 + spread) / (self.deepest + 1) * (_WIDTH - _LEFT)
        return x, self.y(point.speedup)


def _drawn(chart: _Chart, walked: Sequence[Step], words: str) -> str:
    ground = "".join(f"M{x - 1.2:.1f} {y - 1.2:.1f}h2.4v2.4h-2.4z" for x, y in map(chart.place, chart.timed))
    level = chart.y(1.0)
    parts = [
        f"<path d='{ground}' fill='currentColor' fill-opacity='.3'/>",
        f"<path d='M{_LEFT} {level:.1f}H{_WIDTH}' stroke='currentColor' stroke-dasharray='3 3' stroke-opacity='.5'/>",
        f"<text x='0' y='{level + 3:.1f}' font-size='10' fill='currentColor'>first</text>",
        f"<text x='{_LEFT}' y='{_HEIGHT - 22}' font-size='10' fill='currentColor'>"
        f"0 to {chart.deepest} rewrites away</text>",
    ]
    steps_of_frame = -(-len(walked) // _MOST_FRAMES)
    starts = range(0, len(walked), steps_of_frame)
    for number, start in enumerate(starts):
        group = walked[start : start + steps_of_frame]
        tried = "".join(
            f"<circle cx='{x:.1f}' cy='{y:.1f}' r='3.4' fill='{BLUE}'/>"
            for x, y in (chart.place(step.tried) for step in group if not chart.points[step.tried].reason)
        )
        best = group[-1].best
        x, y = chart.place(best)
        inside = (
            f"{tried}<circle cx='{x:.1f}' cy='{y:.1f}' r='6' fill='none' stroke='{ORANGE}' stroke-width='2'/>"
            f"<text x='0' y='{_HEIGHT - 4}' font-size='10' fill='currentColor'>{start + len(group)} "
            f"tried; best so far {chart.points[best].speedup:.2f}x</text>"
        )
        parts.append(frame(number, inside))
    return moving(len(starts), _WIDTH, _HEIGHT, "".join(parts), words)
