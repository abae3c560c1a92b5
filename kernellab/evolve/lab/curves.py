"""Curves of several seeds and spaces as one line with a band, and a table that compares policies."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from kernellab.errors import EvolveError
from kernellab.evolve.lab.pool import load, names
from kernellab.evolve.lab.replay import curve
from kernellab.evolve.policies import POLICIES
from kernellab.options.search import Knobs
from kernellab.records import Record

#: The lab's default knobs: a run twice as long as the usual one.
USUAL = Knobs(rounds=6)
#: Islands without migration, in addition to the policies.
ALONE = "islands, no migration"
#: Steps of one tunable from the best, like a tuner.
TUNER = "tunables alone"
CONTENDERS = (*POLICIES, ALONE, TUNER)


@dataclass(frozen=True)
class Band:
    """After each evaluation, the geometric mean over the spaces of the best speedup over the first design: the mean
    over the seeds, and the seeds' least and largest. ``share`` is the achieved part of the possible gain: 0 is the
    first design, 1 the space's best, in logarithms, over all spaces and seeds."""

    name: str
    middle: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    share: float


class Standing(Record):
    """A policy's result at the end of its replays."""

    policy: str
    speedup: float
    low: float
    high: float
    #: Part of the possible gain.
    share: float
    #: Mean number of evaluations to half of the possible gain; None if most seeds never reached it.
    half: float | None


def contender(name: str, knobs: Knobs) -> Knobs:
    """Return the knobs of a contender. Raises EvolveError if there is none of that name."""
    if name == ALONE:
        return knobs.model_copy(update={"select": "islands", "migrate_every": 0})
    if name == TUNER:
        return knobs.model_copy(update={"select": "greedy", "operators": ("rules:tunables",)})
    if name not in POLICIES:
        raise EvolveError(f"There is no policy {name!r}.", f"Choose one of {'; '.join(CONTENDERS)}.")
    return knobs.model_copy(update={"select": name})


def band(
    name: str, knobs: Knobs = USUAL, seeds: Sequence[int] = range(5), spaces: Sequence[str] = (), noise: float = 1.0
) -> Band:
    """Return a contender's line. ``spaces`` are all by default. Raises EvolveError for an unknown policy or space."""
    contender_knobs, space_names = contender(name, knobs), spaces or names()
    if not space_names:
        raise EvolveError("No space of kernels is recorded.", "Record one: tools/record_pool.py softmax.")
    lines = []
    for seed in seeds:
        at_seed = contender_knobs.model_copy(update={"seed": seed})
        lines.append(_mean_curve([curve(space, at_seed, noise) for space in space_names]))
    # of each evaluation, the value at every seed
    columns = list(zip(*_level(lines), strict=True))
    achieved = fmean(math.log(line[-1]) for line in lines)
    possible = fmean(math.log(load(space).best) for space in space_names)
    return Band(
        name, middle=tuple(math.exp(fmean(map(math.log, column))) for column in columns),
        low=tuple(map(min, columns)), high=tuple(map(max, columns)), share=achieved / possible if possible else 1.0,
    )  # fmt: skip


def standing(line: Band, spaces: Sequence[str] = ()) -> Standing:
    """Return a policy's result from its line."""
    half_speedup = math.exp(fmean(math.log(load(space).best) for space in spaces or names()) / 2)
    half = next((float(at + 1) for at, speedup in enumerate(line.middle) if speedup >= half_speedup), None)
    return Standing(
        policy=line.name, speedup=line.middle[-1], low=line.low[-1], high=line.high[-1], share=line.share,
        half=half,
    )  # fmt: skip


def table(standings: Sequence[Standing]) -> str:
    """The policies as a table, the best first."""
    lines = [f"{'policy':24}{'speedup':>9}  {'of the seeds':16}{'of what could be won':>21}{'half of it after':>18}"]
    for row in sorted(standings, key=lambda s: -s.speedup):
        half = f"{row.half:.0f}" if row.half is not None else "never"
        lines.append(
            f"{row.policy:24}{row.speedup:8.3f}x  [{row.low:.3f}, {row.high:.3f}]{100 * row.share:19.0f} %{half:>18}"
        )
    return "\n".join(lines)


def _mean_curve(curves: Sequence[Sequence[float]]) -> list[float]:
    return [math.exp(fmean(map(math.log, column))) for column in zip(*_level(curves), strict=True)]


def _level(curves: Sequence[Sequence[float]]) -> list[list[float]]:
    """Extend all curves to the longest: a run that has nothing new to try keeps its value."""
    longest = max(map(len, curves))
    return [[*c, *[c[-1]] * (longest - len(c))] for c in curves]
