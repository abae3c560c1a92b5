"""Curves of several seeds and spaces as one line with a band, and policies next to each other in a table."""

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

#: what the lab replays where no caller says otherwise: a run that is twice as long as usual
USUAL = Knobs(rounds=6)
#: islands that never exchange anything, in addition to the policies
ALONE = "islands, no migration"
#: one step of one tunable from the best, which is what a tuner does
TUNER = "tunables alone"
CONTENDERS = (*POLICIES, ALONE, TUNER)


@dataclass(frozen=True)
class Band:
    """After each evaluation the geometric mean over the spaces of the best speedup over the first design: the mean of
    the seeds, the least and the largest of them. ``share`` is what was won of what could be: 0 the first design, 1 the
    space's best, in logarithms, over all spaces and seeds."""

    name: str
    middle: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    share: float


class Standing(Record):
    """A policy at the end of its replays."""

    policy: str
    speedup: float
    low: float
    high: float
    #: of what could be won
    share: float
    #: evaluations until half of what could be won was won, the mean; None where most seeds never did
    half: float | None


def contender(name: str, knobs: Knobs) -> Knobs:
    """The knobs with which a policy takes part. Raises EvolveError: there is none of that name."""
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
    """A contender's line. ``spaces`` are all by default. Raises EvolveError: an unknown policy or space."""
    chosen, where = contender(name, knobs), spaces or names()
    if not where:
        raise EvolveError("No space of kernels is recorded.", "Record one: tools/record_pool.py softmax.")
    lines = []
    for seed in seeds:
        at_seed = chosen.model_copy(update={"seed": seed})
        lines.append(_mean_curve([curve(space, at_seed, noise) for space in where]))
    columns = list(zip(*_level(lines), strict=True))
    final = [fmean(math.log(line[-1]) for line in lines)]
    could = fmean(math.log(load(space).best) for space in where)
    return Band(
        name, tuple(math.exp(fmean(map(math.log, c))) for c in columns), tuple(map(min, columns)),
        tuple(map(max, columns)), final[0] / could if could else 1.0,
    )  # fmt: skip


def standing(found: Band, spaces: Sequence[str] = ()) -> Standing:
    could = math.exp(fmean(math.log(load(space).best) for space in spaces or names()) / 2)
    half = next((float(at + 1) for at, speedup in enumerate(found.middle) if speedup >= could), None)
    return Standing(
        policy=found.name, speedup=found.middle[-1], low=found.low[-1], high=found.high[-1], share=found.share,
        half=half,
    )  # fmt: skip


def table(found: Sequence[Standing]) -> str:
    """Policies, the best first."""
    lines = [f"{'policy':24}{'speedup':>9}  {'of the seeds':16}{'of what could be won':>21}{'half of it after':>18}"]
    for one in sorted(found, key=lambda s: -s.speedup):
        half = f"{one.half:.0f}" if one.half is not None else "never"
        lines.append(
            f"{one.policy:24}{one.speedup:8.3f}x  [{one.low:.3f}, {one.high:.3f}]{100 * one.share:19.0f} %{half:>18}"
        )
    return "\n".join(lines)


def _mean_curve(curves: Sequence[Sequence[float]]) -> list[float]:
    return [math.exp(fmean(map(math.log, column))) for column in zip(*_level(curves), strict=True)]


def _level(curves: Sequence[Sequence[float]]) -> list[list[float]]:
    """All as long as the longest: a run that has nothing new to try stays where it is."""
    longest = max(map(len, curves))
    return [[*c, *[c[-1]] * (longest - len(c))] for c in curves]
