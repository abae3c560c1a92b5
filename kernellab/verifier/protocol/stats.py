"""Medians, quartiles and the bootstrap interval of a paired ratio; and a stage's result in one line.

A ratio is baseline over candidate, so that more than 1 is faster. Times and waits are seconds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from kernellab.records import Comparison, Stage, StageResult, StageState, Timing
from kernellab.verifier.protocol.rules import TIMING


def timing(seconds: Sequence[float]) -> Timing:
    """Median and quartiles in ms of times in seconds."""
    import numpy as np

    q1, median, q3 = np.percentile(np.asarray(seconds), [25, 50, 75]) * 1e3
    return Timing(median_ms=float(median), q1_ms=float(q1), q3_ms=float(q3), samples=len(seconds))


def calm(seconds: Sequence[float]) -> list[float]:
    """The fastest fifth: disturbances only lengthen a call, so on a busy machine these represent the code best."""
    return sorted(seconds)[: max(3, len(seconds) // 5)]


def compare(
    baseline: str,
    base: Sequence[float],
    candidate: Sequence[float],
    seed: int = 0,
    *,
    busy: bool = False,
    noise: float = 0.0,
    draws: int = TIMING.bootstrap_draws,
    waited: tuple[Sequence[float], Sequence[float]] = ((), ()),
) -> Comparison:
    """Speedup with a 95 % interval: the median ratio of pairs of calls, which is robust to drift; on a busy machine the
    ratio of the medians of the :func:`calm` calls.

    The bootstrap draws whole blocks, since calls of one block share disturbances. The interval is widened by ``noise``,
    the share by which two workers of the same code differed in this run, and at least by the noise floor. On a ``busy``
    machine it also covers four fifths of the ratios of single pairs, and the ratio that would result if either side had
    not ``waited`` (s, for each call of the baseline and of the candidate) for cores.
    """
    import numpy as np

    pairs = min(len(base), len(candidate))
    b, c = np.asarray(base[:pairs]), np.asarray(candidate[:pairs])
    logs = np.log(b / c)
    speedup = float(np.exp(np.median(logs)))
    size = TIMING.block_calls if pairs >= 4 * TIMING.block_calls else 1
    blocks = pairs // size
    first = np.random.default_rng(seed).integers(0, blocks, (draws, blocks)) * size
    draw = (first[:, :, None] + np.arange(size)).reshape(draws, -1)
    low, high = np.exp(np.percentile(np.median(logs[draw], axis=1), [2.5, 97.5]))
    if busy:
        quantiles = np.percentile(b / c, [10, 90])
        own_medians = [_alone(t, w) for t, w in zip((b, c), waited, strict=True)]
        speedup = float(np.median(calm(list(b))) / np.median(calm(list(c))))
        low = min(low, quantiles[0], own_medians[0] / np.median(c))
        high = max(high, quantiles[1], np.median(b) / own_medians[1])
    floor = 1 + max(TIMING.noise_floor, noise)
    return Comparison(
        baseline=baseline,
        baseline_time=timing(calm(base) if busy else base),
        speedup=speedup,
        low=min(float(low), speedup) / floor,
        high=max(float(high), speedup) * floor,
    )


def _alone(seconds: Any, waited: Sequence[float]) -> float:
    """The median after subtracting each call's wait."""
    import numpy as np

    if len(waited) < len(seconds):
        return float(np.median(seconds))
    own = np.maximum(seconds - np.asarray(waited[: len(seconds)]), TIMING.min_unwaited_share * seconds)
    return float(np.median(own))


#: a median's standard error is this times the interquartile range, divided by the root of the number of values
_SPREAD = 1.2533 / 1.349
#: standard errors by which two medians must differ to count as different
_SURE = 3.0


class _LogDifference(NamedTuple):
    """The difference of the medians of two samples' logarithms, and its variance by chance."""

    difference: float
    variance: float


def _log_difference(a: Sequence[float], b: Sequence[float]) -> _LogDifference:
    import numpy as np

    a_logs, b_logs = np.log(np.asarray(a)), np.log(np.asarray(b))
    variance = sum((_SPREAD * float(np.subtract(*np.percentile(x, [75, 25])))) ** 2 / len(x) for x in (a_logs, b_logs))
    return _LogDifference(float(np.median(a_logs) - np.median(b_logs)), variance)


def difference_beyond_chance(a: Sequence[float], b: Sequence[float]) -> float:
    """The share by which the medians of two samples of ratios differ, minus the effect of chance."""
    if min(len(a), len(b)) < 2:
        return 0.0
    found = _log_difference(a, b)
    return math.expm1(max(found.difference**2 - found.variance, 0.0) ** 0.5)


def larger(a: Sequence[float], b: Sequence[float], share: float) -> bool:
    """Is the median of ``a`` larger than that of ``b`` by more than ``share``, beyond chance? False for few values."""
    if min(len(a), len(b)) < TIMING.min_pairs:
        return False
    found = _log_difference(a, b)
    return found.difference - _SURE * math.sqrt(found.variance) > math.log1p(share)


def half_width(base: Sequence[float], candidate: Sequence[float]) -> float:
    """How far, as a share, the interval of the paired ratio extends to either side by chance."""
    comparison = compare("", base, candidate, draws=200)
    floor = 1 + TIMING.noise_floor
    return (comparison.high / floor - comparison.low * floor) / 2 / comparison.speedup


def settled(base: Sequence[float], candidate: Sequence[float], noise: float = 0.0, more: float = float("inf")) -> bool:
    """Would more pairs change little? True if the interval is hardly wider than ``noise`` makes it, or if ``more``
    times as many pairs (all that the budget allows) would hardly narrow it."""
    if min(len(base), len(candidate)) < TIMING.settled_pairs:
        return False
    comparison = compare("", base, candidate, noise=noise, draws=200)
    floor = max(TIMING.noise_floor, noise)
    beyond = max(TIMING.sharp_share, TIMING.sharp_noise_part * noise)
    width = (comparison.high - comparison.low) / 2 / comparison.speedup
    # the effect of chance on a median scales with the inverse root of the number of pairs
    return width < floor + beyond or (width - floor) * (1 - max(more, 1.0) ** -0.5) < TIMING.sharp_share


def one_line_each(stages: Iterable[StageResult]) -> list[StageResult]:
    """One result per stage, in order: parts of a stage are joined, and a skipped part leaves only its note.

    A stage fails if a part fails, and counts as skipped only if all parts were. A report of a running stage counts
    until its next part arrives.
    """
    joined: dict[Stage, StageResult] = {}
    for part in stages:
        earlier = joined.get(part.name)
        if earlier is None or earlier.state is StageState.RUNNING:
            joined[part.name] = part
            continue
        if part.state is StageState.RUNNING:
            joined[part.name] = part.model_copy(update={"seconds": earlier.seconds + part.seconds})
            continue
        states = {earlier.state, part.state} - {StageState.SKIPPED}
        state = StageState.FAILED if StageState.FAILED in states else next(iter(states), StageState.SKIPPED)
        notes = "; ".join(filter(None, [earlier.note, part.note]))
        joined[part.name] = StageResult(name=part.name, state=state, seconds=earlier.seconds + part.seconds, note=notes)
    return list(joined.values())
