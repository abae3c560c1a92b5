"""A search as a moving picture: a recorded space, which of its kernels a run tries, and which it holds for the best."""

from __future__ import annotations

import math
from html import escape

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
    taken = steps(pool, knobs, noise)
    best = pool.points[taken[-1][1]].speedup
    words = (
        f"{policy} on {space}: {len(taken)} of {len(pool.points)} kernels tried, "
        f"the best {best:.2f}x the first design; the space's best is {pool.best:.2f}x."
    )
    return Shown(words, f"{_drawn(pool, taken, words)}<br>{escape(words)}")


def _drawn(pool: Pool, taken: tuple[tuple[int, int], ...], words: str) -> str:
    timed = [at for at, point in enumerate(pool.points) if not point.reason]
    low, high = (math.log(f(pool.points[at].speedup for at in timed)) for f in (min, max))
    deepest = max(point.depth for point in pool.points) or 1

    def place(at: int) -> tuple[float, float]:
        point = pool.points[at]
        spread = (at * 0.618034 % 1 - 0.5) * 0.72  # neighbours in number apart
        x = _LEFT + (point.depth + 0.5 + spread) / (deepest + 1) * (_WIDTH - _LEFT)
        y = _TOP + (high - math.log(point.speedup)) / ((high - low) or 1) * (_HEIGHT - _TOP - 34)
        return x, y

    ground = "".join(f"M{x - 1.2:.1f} {y - 1.2:.1f}h2.4v2.4h-2.4z" for x, y in map(place, timed))
    level = _TOP + high / ((high - low) or 1) * (_HEIGHT - _TOP - 34)
    parts = [
        f"<path d='{ground}' fill='currentColor' fill-opacity='.3'/>",
        f"<path d='M{_LEFT} {level:.1f}H{_WIDTH}' stroke='currentColor' stroke-dasharray='3 3' stroke-opacity='.5'/>",
        f"<text x='0' y='{level + 3:.1f}' font-size='10' fill='currentColor'>first</text>",
        f"<text x='{_LEFT}' y='{_HEIGHT - 22}' font-size='10' fill='currentColor'>0 to {deepest} rewrites away</text>",
    ]
    count = -(-len(taken) // _MOST_FRAMES)
    frames = [taken[at : at + count] for at in range(0, len(taken), count)]
    for number, group in enumerate(frames):
        tried = "".join(
            f"<circle cx='{x:.1f}' cy='{y:.1f}' r='3.4' fill='{BLUE}'/>"
            for x, y in (place(at) for at, _ in group if not pool.points[at].reason)
        )
        x, y = place(group[-1][1])
        best = pool.points[group[-1][1]].speedup
        inside = (
            f"{tried}<circle cx='{x:.1f}' cy='{y:.1f}' r='6' fill='none' stroke='{ORANGE}' stroke-width='2'/>"
            f"<text x='0' y='{_HEIGHT - 4}' font-size='10' fill='currentColor'>{min((number + 1) * count, len(taken))} "
            f"tried; best so far {best:.2f}x</text>"
        )
        parts.append(frame(number, inside))
    return moving(len(frames), _WIDTH, _HEIGHT, "".join(parts), words)
