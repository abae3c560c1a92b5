"""Novelty before cost: a candidate that is nearly one that was seen is not built.

Sketches are compared by their normal form and their schedule's features; no embedding model is needed.
"""

from __future__ import annotations

import time
from bisect import bisect_left, bisect_right, insort
from dataclasses import dataclass, field
from itertools import islice

from kernellab.errors import SketchError
from kernellab.evolve.records import Proposal, Spent, Step
from kernellab.evolve.state import RunState
from kernellab.sketch.check import check
from kernellab.sketch.rewrite import Features, features
from kernellab.target import Target


@dataclass(frozen=True)
class Look:
    """What the free steps took, and why the last of them refused the candidate; "" where it continues."""

    spent: tuple[Spent, ...] = ()
    refused: str = ""


@dataclass
class Novelty:
    """Keeps the features of what was evaluated in a run, and refuses what does not check or is nothing new.

    A candidate is compared with what was evaluated when it was proposed, so that a run that continues after a
    kill refuses what it would have refused.
    """

    target: Target
    #: candidates by the key of their normal form, and all by the sum of their features, each once
    _by_key: dict[str, int] = field(default_factory=dict)
    _by_total: list[tuple[float, int]] = field(default_factory=list)
    _features: dict[int, Features] = field(default_factory=dict)
    #: evaluations that were taken in, and each one's place among them
    _taken: int = 0
    _places: dict[int, int] = field(default_factory=dict)

    def look(self, state: RunState, proposal: Proposal) -> Look:
        """Check a proposal's sketch, and compare it with every other of the run. A source has none."""
        if not proposal.sketch:
            return Look()
        began = time.perf_counter()
        found = check(proposal.sketch, chip=self.target.chip)
        checked = time.perf_counter()
        wrong = next((d for d in found.diagnostics if d.severity == "error"), None)
        spent = Spent(step=Step.CHECK, seconds=checked - began, passed=wrong is None)
        if wrong is not None:
            return Look((spent,), f"line {wrong.line}: {wrong.message}")
        near = self._near(state, proposal)
        compared = Spent(step=Step.NOVELTY, seconds=time.perf_counter() - checked, passed=not near)
        return Look((spent, compared), near)

    def _near(self, state: RunState, proposal: Proposal) -> str:
        """Which evaluated candidate it repeats, in a sentence; "" where it is new."""
        self._take(state)
        mine, similarity = self._of(proposal), state.knobs.novelty
        if mine is None:
            return ""
        before = state.known_at.get(proposal.number, len(state.evaluations))
        same = self._by_key.get(mine.key)
        if same is not None and self._places[same] < before:
            return f"It is candidate {same} but for names, or for sizes of the same power of two."
        if similarity < 1:
            # whose sums differ by more is not as near
            low = bisect_left(self._by_total, (mine.total * similarity, 0))
            high = bisect_right(self._by_total, (mine.total / similarity, len(state.proposals)))
            for _, number in self._by_total[low:high]:
                if self._places[number] < before and mine.like(self._features[number], similarity):
                    return f"It is nearly candidate {number}."
        return ""

    def _take(self, state: RunState) -> None:
        """Takes in what was evaluated since the last look."""
        for place, number in enumerate(islice(state.evaluations, self._taken, None), self._taken):
            self._places[number] = place
            proposal = state.proposals[number]
            found = self._of(proposal) if proposal.sketch else None
            if found is not None and found.key not in self._by_key:
                self._by_key[found.key] = number
                insort(self._by_total, (found.total, number))
        self._taken = len(state.evaluations)

    def _of(self, proposal: Proposal) -> Features | None:
        if proposal.number not in self._features:
            try:
                self._features[proposal.number] = features(proposal.sketch)
            except SketchError:
                return None
        return self._features[proposal.number]
