"""The Analyst by rules: features of fast candidates that slow ones lack, as effect sizes with intervals.

Each feature of the schedules splits the round's candidates in two; the best split is refined inside the faster half (a
regression tree of two levels over the logarithm of the time, as in CART, Breiman et al. 1984). The plan names what
helps, what hurts, and the operators that paid.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from random import Random

from kernellab.evolve.jobs import target_of
from kernellab.evolve.records import Finding, Plan
from kernellab.evolve.state import RunState
from kernellab.evolve.vary.bandit import arms
from kernellab.sketch.rewrite.features import STEPS

#: Minimum number of candidates on each side of a split.
_FEWEST = 3
_RESAMPLES = 400
_FINDINGS = 4
_PREFERRED = 2
#: Ratio of measured to modelled time that traffic and arithmetic do not explain.
_UNEXPLAINED = 4.0
#: The moves that change a candidate's limit, the likeliest first.
MOVES = {
    "imbalance": ("rules:split_k", "rules:placement", "rules:split"),
    "launches": ("rules:join", "rules:fuse", "rules:recompute", "rules:online"),
    "instructions": (
        "rules:apart",
        "rules:turn",
        "rules:select",
        "rules:segment",
        "rules:factor",
        "rules:vectorise",
        "rules:interchange",
        "rules:unroll",
    ),
    "memory": ("rules:online", "rules:interchange", "rules:placement", "rules:pipeline"),
    "compute": ("rules:factor", "rules:apart", "rules:vectorise", "rules:precision"),
}


@dataclass(frozen=True)
class Row:
    """A candidate: the logarithm of its speedup, and its features."""

    log: float
    features: dict[str, float]


@dataclass(frozen=True)
class Split:
    """Candidates with and without a feature; either side may be the faster one."""

    feature: str
    having: tuple[Row, ...]
    lacking: tuple[Row, ...]

    @property
    def gain(self) -> float:
        """The squared error that the split removes."""
        return _error((*self.having, *self.lacking)) - _error(self.having) - _error(self.lacking)


def plan(state: RunState) -> Plan:
    """Return the next round's plan, from all candidates that ran."""
    rows = [
        Row(math.log(worth), e.place.features)
        for n, e in sorted(state.evaluations.items())  # a resampling depends on the order
        if e.passed and e.same_as is None and (worth := state.worth(n)) > 0
    ]
    findings = [f for f in (finding(split, state.knobs.seed) for split in tree(rows)) if not f.low <= 1 <= f.high]
    paid, (limit, moves) = preferred(state), evidence(state)
    prefer = tuple(dict.fromkeys((*paid, *moves)))
    sentences = [f.text for f in findings]
    if paid:
        sentences.append(f"What improved candidates for its cost: {', '.join(paid)}.")
    if limit:
        sentences.append(f"{limit} Moves for that: {', '.join(moves)}.")
    return Plan(text=" ".join(sentences), prefer=prefer, findings=tuple(findings))


def evidence(state: RunState) -> tuple[str, tuple[str, ...]]:
    """Name the limit of the best candidate, in a sentence, and the moves that change it; both empty if unknown.

    Few programs leave cores without work; a measured time of many times the modelled one is neither traffic nor
    arithmetic; several launches store and reload the values between them.
    """
    best = next(iter(state.population()), None)
    if best is None:
        return "", ()
    place, modelled_ms = state.evaluations[best].place, state.evaluations[best].modelled_ms
    score, cores = state.scores.get(best), target_of(state.begun).chip.cores
    if place.programs and place.programs < cores:
        return f"Candidate {best} has {place.programs:.0f} programs for {cores} cores.", MOVES["imbalance"]
    if score is not None and modelled_ms and score.time.median_ms > _UNEXPLAINED * modelled_ms:
        times = score.time.median_ms / modelled_ms
        moves = (*(MOVES["launches"] if place.launches > 1 else ()), *MOVES["instructions"])
        return f"Candidate {best} takes {times:.0f} times what its traffic and arithmetic would.", moves
    if place.bound == "memory" and place.launches > 1:
        return f"Candidate {best} is bound by memory, in {place.launches} launches.", MOVES["launches"]
    return (f"Candidate {best} is bound by {place.bound}.", MOVES[place.bound]) if place.bound else ("", ())


def preferred(state: RunState) -> tuple[str, ...]:
    """The operators with the largest gain per cost."""
    paid = sorted(((arm.rate, name) for name, arm in state.once(arms).items() if arm.gain > 0), reverse=True)
    return tuple(name for _, name in paid[:_PREFERRED])


def tree(rows: Sequence[Row], depth: int = 2) -> list[Split]:
    """The best splits of ``rows``, then those of their faster halves."""
    ranked = sorted(splits(rows), key=lambda split: -split.gain)[:_FINDINGS]
    if not ranked or depth == 1:
        return ranked
    best_split = ranked[0]
    faster = max(best_split.having, best_split.lacking, key=_mean)
    inner = tree(faster, depth - 1)[:1]
    side = best_split.feature if faster is best_split.having else f"without {best_split.feature}"
    return ranked + [Split(f"{split.feature} ({side})", split.having, split.lacking) for split in inner]


def splits(rows: Sequence[Row]) -> Iterable[Split]:
    """Yield a split for each feature and value: present or not, or at least that value."""
    names = sorted({name for row in rows for name in row.features})
    for name in names:
        values = sorted({row.features.get(name, 0.0) for row in rows})
        for value in values[1:]:
            having = tuple(row for row in rows if row.features.get(name, 0.0) >= value)
            lacking = tuple(row for row in rows if row.features.get(name, 0.0) < value)
            if len(having) >= _FEWEST and len(lacking) >= _FEWEST:
                is_flag = values[0] == 0 and len(values) == 2
                yield Split(name if is_flag else f"{name} >= {_plain(name, value)}", having, lacking)


def finding(split: Split, seed: int = 0) -> Finding:
    """The split's effect: the ratio of geometric means, with its 95 % bootstrap interval."""
    random = Random(f"{seed}:{split.feature}")
    effects = sorted(
        _mean(random.choices(split.having, k=len(split.having)))
        - _mean(random.choices(split.lacking, k=len(split.lacking)))
        for _ in range(_RESAMPLES)
    )
    low, high = effects[int(0.025 * _RESAMPLES)], effects[int(0.975 * _RESAMPLES)]
    return Finding(
        feature=split.feature, effect=math.exp(_mean(split.having) - _mean(split.lacking)), low=math.exp(low),
        high=math.exp(high), having=len(split.having), lacking=len(split.lacking),
    )  # fmt: skip


def _plain(name: str, value: float) -> str:
    """A feature's value in a sketch's units: steps and warps are stored as logarithms."""
    if name.startswith(STEPS):
        return f"{2 ** (4 * value):.0f}"
    return f"{2 ** (value - 1):.0f}" if name in ("num_warps", "num_stages") else f"{value:g}"


def _mean(rows: Sequence[Row]) -> float:
    return sum(row.log for row in rows) / len(rows)


def _error(rows: Sequence[Row]) -> float:
    mean = _mean(rows)
    return sum((row.log - mean) ** 2 for row in rows)
