"""The order of a session's verified kernels, and the runs that timed several of them together.

The order uses the lower end of the speedup's interval, so few calls or a busy machine do not make a kernel the best.
Two kernels that were timed in one run are ordered by that run, or by the newest such run; an interval that holds 1 and
is too wide to rank orders nothing. Among kernels that only noise separates from the first, the one with the fewest
avoidable conditions is the best.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple

from kernellab.agents.briefs import avoidable, ranks_nothing, tied
from kernellab.records import Candidate, Comparison, Trust, Verdict
from kernellab.session.record.records import Turn

if TYPE_CHECKING:
    from kernellab.session.record.state import State


class Ratio(NamedTuple):
    """A speedup with the ends of its 95 % interval."""

    speedup: float
    low: float
    high: float

    @classmethod
    def of(cls, comparison: Comparison) -> Ratio:
        return cls(comparison.speedup, comparison.low, comparison.high)

    @property
    def is_significant(self) -> bool:
        """Whether the interval excludes 1."""
        return not self.low <= 1.0 <= self.high

    def over(self, other: Ratio) -> Ratio:
        """This speedup divided by ``other``, which has the same baseline or is the kernel compared with.

        The interval is at least as wide as a 95 % interval.
        """
        return Ratio(self.speedup / other.speedup, self.low / other.high, self.high / other.low)


#: The speedup of one kernel over the one of the same run that all others are compared with: itself.
SELF = Ratio(1.0, 1.0, 1.0)
#: The hashes of two kernels' sources.
Pair = tuple[str, str]
#: The speedup of a pair's first kernel over its second.
PairedSpeedups = Mapping[Pair, Ratio]


@dataclass(frozen=True)
class Best:
    """A passed candidate. ``turn`` is the Verifier's; ``number`` is that of the turn that wrote the kernel;
    ``paired_speedups`` are those of all kernels of the session."""

    turn: Turn
    number: int
    candidate: Candidate
    verdict: Verdict
    paired_speedups: PairedSpeedups = field(default_factory=dict)

    def rank(self) -> tuple[int, float, int]:
        """The verdict's rank; the latest first if nothing was timed."""
        order, value = self.verdict.rank
        return order, value, -self.turn.number if order == 2 else 0

    def tied(self, other: Best) -> bool:
        """Whether the intervals leave open which is faster: of the run that timed both, otherwise of the speedups."""
        own_hash, other_hash = self.candidate.source.hash, other.candidate.source.hash
        ratio = self.paired_speedups.get((own_hash, other_hash)) or self.paired_speedups.get((other_hash, own_hash))
        return not ratio.is_significant if ratio is not None else tied(self.verdict, other.verdict)


def standings_of(state: State) -> list[Best]:
    """The candidates that passed at T2 or better, fastest first; untimed ones come last.

    A reused verdict does not add a second candidate.
    """
    candidates, speedups = [], paired_speedups(state)
    for turn in state.turns.values():
        if turn.verdict is None or not turn.verdict.passed or turn.verdict.trust in (Trust.T0, Trust.T1):
            continue
        code_turn = state.source_turn(turn.id)
        if turn.reused is None and code_turn is not None and code_turn.candidate is not None:
            candidates.append(Best(turn, code_turn.number, code_turn.candidate, turn.verdict, speedups))
    return _with_fewer_limits(_ordered_by_pairs(sorted(candidates, key=Best.rank), speedups))


def paired_speedups(state: State) -> PairedSpeedups:
    """The newest speedup of every two kernels that one run timed at the task's own sizes, oldest run first."""
    speedups: dict[Pair, Ratio] = {}
    for (first, second), ratio in _timed_pairs(state):
        if first != second:
            speedups.pop((second, first), None)
            speedups.pop((first, second), None)  # so that the newest run comes last
            speedups[first, second] = ratio
    return speedups


def _timed_pairs(state: State) -> Iterator[tuple[Pair, Ratio]]:
    for turn in sorted(state.turns.values(), key=lambda turn: turn.number):
        if turn.next_to_best is not None:
            best_turn, comparison = turn.next_to_best
            candidate, best_candidate = state.candidate(turn.id), state.candidate(best_turn)
            if candidate is not None and best_candidate is not None:
                yield (candidate.source.hash, best_candidate.source.hash), Ratio.of(comparison)
    for event in state.paired:
        if event.sizes:
            continue
        # ratios: of the first kernel over each
        ratios = [SELF, *map(Ratio.of, event.comparisons)]
        timed = zip(map(state.candidate, event.turns), ratios, strict=True)
        for (first, over_first), (second, over_second) in combinations(timed, 2):
            if first is not None and second is not None:
                yield (first.source.hash, second.source.hash), over_second.over(over_first)


def _ordered_by_pairs(ranked: list[Best], speedups: PairedSpeedups) -> list[Best]:
    """Order each pair as in the run that timed both, unless that run says nothing: the median of a few calls on a busy
    machine would make a kernel the best by chance."""
    best_by_hash = {best.candidate.source.hash: best for best in ranked}
    faster_and_slower = [
        (first, second) if ratio.speedup > 1 else (second, first)
        for (first, second), ratio in speedups.items()
        if first in best_by_hash and second in best_by_hash
        if ratio.low > 1 or ratio.high < 1 or not ranks_nothing(ratio.low, ratio.high)
    ]
    # a move may undo another pair's order, and runs may contradict each other: the number of passes is limited
    for fast_hash, slow_hash in faster_and_slower * min(len(faster_and_slower), len(ranked)):
        fast, slow = best_by_hash[fast_hash], best_by_hash[slow_hash]
        if ranked.index(fast) > ranked.index(slow):
            # of the pair, the kernel that was judged later moves
            moved, anchor = (fast, slow) if fast.turn.number > slow.turn.number else (slow, fast)
            ranked.remove(moved)
            ranked.insert(ranked.index(anchor) + (moved is slow), moved)
    return ranked


def _with_fewer_limits(ranked: list[Best]) -> list[Best]:
    """Return the order with the kernel with the fewest avoidable conditions first, among those tied with the first."""
    contenders = [best for best in ranked if best is ranked[0] or best.tied(ranked[0])]
    first = min(contenders, key=lambda best: len(avoidable(best.verdict.conditions)), default=None)
    return [first, *(best for best in ranked if best is not first)] if first is not None else ranked
