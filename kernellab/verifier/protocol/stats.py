"""Medians, quartiles and the bootstrap interval of a paired ratio."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from kernellab.records import Comparison, Stage, StageResult, StageState, Timing
from kernellab.verifier.protocol.rules import TIMING


def timing(seconds: Sequence[float]) -> Timing:
    """Median and quartiles in ms of times in seconds."""
    import numpy as np

    q1, median, q3 = np.percentile(np.asarray(seconds), [25, 50, 75]) * 1e3
    return Timing(median_ms=float(median), q1_ms=float(q1), q3_ms=float(q3), samples=len(seconds))


def calm(seconds: Sequence[float]) -> list[float]:
    """The fastest fifth: what disturbs a call only ever adds to it, so on a busy machine these say most of the code."""
    return sorted(seconds)[: max(3, len(seconds) // 5)]


def compare(
    baseline: str,
    base: Sequence[float],
    candidate: Sequence[float],
    seed: int = 0,
    *,
    busy: bool = False,
    noise: float = 0.0,
    draws: int = TIMING.bootstrap,
    waited: tuple[Sequence[float], Sequence[float]] = ((), ()),
) -> Comparison:
    """Speedup (the median ratio of a pair of calls, which what drifts does not move; on a busy machine the ratio of
    the medians of the :func:`calm` calls) with a 95 % interval.

    The bootstrap draws whole blocks, since calls of one block share what disturbs them. It is widened by ``noise``, the
    share by which two workers of the same code differed in this run, and by the noise floor at least. On a ``busy``
    machine the interval also holds four fifths of all single pairs' ratios, and what the ratio would be had either
    side not ``waited`` (s, for each call of the baseline and of the candidate) for cores.
    """
    import numpy as np

    pairs = min(len(base), len(candidate))
    b, c = np.asarray(base[:pairs]), np.asarray(candidate[:pairs])
    logs = np.log(b / c)
    speedup = float(np.exp(np.median(logs)))
    size = TIMING.block if pairs >= 4 * TIMING.block else 1
    blocks = pairs // size
    first = np.random.default_rng(seed).integers(0, blocks, (draws, blocks)) * size
    draw = (first[:, :, None] + np.arange(size)).reshape(draws, -1)
    low, high = np.exp(np.percentile(np.median(logs[draw], axis=1), [2.5, 97.5]))
    if busy:
        wide = np.percentile(b / c, [10, 90])
        alone = [_alone(t, w) for t, w in zip((b, c), waited, strict=True)]
        speedup = float(np.median(calm(list(b))) / np.median(calm(list(c))))
        low = min(low, wide[0], alone[0] / np.median(c))
        high = max(high, wide[1], np.median(b) / alone[1])
    floor = 1 + max(TIMING.noise_floor, noise)
    return Comparison(
        baseline=baseline,
        baseline_time=timing(calm(base) if busy else base),
        speedup=speedup,
        low=min(float(low), speedup) / floor,
        high=max(float(high), speedup) * floor,
    )


def _alone(seconds: Any, waited: Sequence[float]) -> float:
    """The median with what each call waited taken off."""
    import numpy as np

    if len(waited) < len(seconds):
        return float(np.median(seconds))
    own = np.maximum(seconds - np.asarray(waited[: len(seconds)]), TIMING.least_alone * seconds)
    return float(np.median(own))


def apart(a: Sequence[float], b: Sequence[float]) -> float:
    """The share by which the medians of two samples of ratios differ, less what chance makes of it."""
    import numpy as np

    if min(len(a), len(b)) < 2:
        return 0.0
    one, two = np.log(np.asarray(a)), np.log(np.asarray(b))
    chance = sum((_SPREAD * float(np.subtract(*np.percentile(x, [75, 25])))) ** 2 / len(x) for x in (one, two))
    difference = float(np.median(one) - np.median(two))
    return float(np.expm1(max(difference**2 - chance, 0.0) ** 0.5))


#: standard errors by which two medians differ that are not of one kind
_SURE = 3.0


def larger(a: Sequence[float], b: Sequence[float], share: float) -> bool:
    """Is the median of ``a`` larger than that of ``b`` by more than ``share``, beyond chance? Never of few."""
    import numpy as np

    if min(len(a), len(b)) < TIMING.least:
        return False
    one, two = np.log(np.asarray(a)), np.log(np.asarray(b))
    chance = sum((_SPREAD * float(np.subtract(*np.percentile(x, [75, 25])))) ** 2 / len(x) for x in (one, two))
    return bool(float(np.median(one) - np.median(two)) - _SURE * chance**0.5 > float(np.log1p(share)))


def half_width(base: Sequence[float], candidate: Sequence[float]) -> float:
    """How far, as a share, the interval of the paired ratio reaches to either side of it by chance alone."""
    found = compare("", base, candidate, draws=200)
    floor = 1 + TIMING.noise_floor
    return (found.high / floor - found.low * floor) / 2 / found.speedup


#: the standard error of a median is this times the distance of the quartiles, over the root of the number
_SPREAD = 1.2533 / 1.349


def settled(base: Sequence[float], candidate: Sequence[float], noise: float = 0.0, more: float = float("inf")) -> bool:
    """True when more pairs would change little: the interval is hardly wider than what ``noise`` makes of it, or
    ``more`` times as many pairs (all that the budget has room for) would hardly narrow it."""
    if min(len(base), len(candidate)) < TIMING.few:
        return False
    found = compare("", base, candidate, noise=noise, draws=200)
    floor = max(TIMING.noise_floor, noise)
    beyond = max(TIMING.sharp, TIMING.sharp_part * noise)
    half = (found.high - found.low) / 2 / found.speedup
    # what chance makes of a median goes with the root of the number of pairs
    return half < floor + beyond or (half - floor) * (1 - max(more, 1.0) ** -0.5) < TIMING.sharp


def one_line_each(stages: Iterable[StageResult]) -> list[StageResult]:
    """One result a stage, in order: parts of a stage are joined, and a skipped part leaves only its note.

    A stage fails when a part does, and is skipped only when all of it was. What was told of a stage under way counts
    until its next part comes.
    """
    joined: dict[Stage, StageResult] = {}
    for part in stages:
        seen = joined.get(part.name)
        if seen is None or seen.state is StageState.RUNNING:
            joined[part.name] = part
            continue
        if part.state is StageState.RUNNING:
            joined[part.name] = part.model_copy(update={"seconds": seen.seconds + part.seconds})
            continue
        states = {seen.state, part.state} - {StageState.SKIPPED}
        state = StageState.FAILED if StageState.FAILED in states else next(iter(states), StageState.SKIPPED)
        notes = "; ".join(filter(None, [seen.note, part.note]))
        joined[part.name] = StageResult(name=part.name, state=state, seconds=seen.seconds + part.seconds, note=notes)
    return list(joined.values())
