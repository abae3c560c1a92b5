"""Novelty before cost: a candidate that nearly repeats an evaluated one is not built.

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
    """The free steps' durations, and why the last of them refused the candidate; "" if it continues."""

    spent: tuple[Spent, ...] = ()
    refused: str = ""


@dataclass
class Novelty:
    """Stores the features of a run's evaluated candidates, and refuses sketches with errors or without novelty.

    A candidate is compared with those that were evaluated when it was proposed, so that a run that continues after a
    kill makes the same decisions.
    """

    target: Target
    #: Candidates by the key of their normal form, and sorted by the sum of their features; each once.
    _by_key: dict[str, int] = field(default_factory=dict)
    _by_total: list[tuple[float, int]] = field(default_factory=list)
    _features: dict[int, Features] = field(default_factory=dict)
    #: Number of evaluations read, and each one's position among them.
    _read_count: int = 0
    _positions: dict[int, int] = field(default_factory=dict)

    def look(self, state: RunState, proposal: Proposal) -> Look:
        """Check a proposal's sketch, and compare it with all others of the run. A source is not checked."""
        if not proposal.sketch:
            return Look()
        began = time.perf_counter()
        result = check(proposal.sketch, chip=self.target.chip)
        checked_at = time.perf_counter()
        first_error = next((d for d in result.diagnostics if d.severity == "error"), None)
        spent = Spent(step=Step.CHECK, seconds=checked_at - began, passed=first_error is None)
        if first_error is not None:
            return Look((spent,), f"line {first_error.line}: {first_error.message}")
        repetition = self._repeated(state, proposal)
        compared = Spent(step=Step.NOVELTY, seconds=time.perf_counter() - checked_at, passed=not repetition)
        return Look((spent, compared), repetition)

    def _repeated(self, state: RunState, proposal: Proposal) -> str:
        """The evaluated candidate that it repeats, in a sentence; "" if it is new."""
        self._read_evaluations(state)
        own_features, similarity = self._features_of(proposal), state.knobs.novelty
        if own_features is None:
            return ""
        known_count = state.known_at.get(proposal.number, len(state.evaluations))
        same_number = self._by_key.get(own_features.key)
        if same_number is not None and self._positions[same_number] < known_count:
            return f"It is candidate {same_number} but for names, or for sizes of the same power of two."
        if similarity < 1:
            # a larger difference of the sums excludes the similarity
            low = bisect_left(self._by_total, (own_features.total * similarity, 0))
            high = bisect_right(self._by_total, (own_features.total / similarity, len(state.proposals)))
            for _, number in self._by_total[low:high]:
                if self._positions[number] < known_count and own_features.like(self._features[number], similarity):
                    return f"It is nearly candidate {number}."
        return ""

    def _read_evaluations(self, state: RunState) -> None:
        """Add the candidates that were evaluated since the last call."""
        for position, number in enumerate(islice(state.evaluations, self._read_count, None), self._read_count):
            self._positions[number] = position
            proposal = state.proposals[number]
            new_features = self._features_of(proposal) if proposal.sketch else None
            if new_features is not None and new_features.key not in self._by_key:
                self._by_key[new_features.key] = number
                insort(self._by_total, (new_features.total, number))
        self._read_count = len(state.evaluations)

    def _features_of(self, proposal: Proposal) -> Features | None:
        """The features of a proposal's sketch, computed once; None if it cannot be parsed."""
        if proposal.number not in self._features:
            try:
                self._features[proposal.number] = features(proposal.sketch)
            except SketchError:
                return None
        return self._features[proposal.number]
