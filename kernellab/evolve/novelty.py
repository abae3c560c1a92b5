"""Novelty before cost: a candidate that is nearly one that was seen is not built.

Sketches are compared by their normal form and their schedule's features; no embedding model is needed.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from kernellab.errors import SketchError
from kernellab.evolve.records import Proposal, Spent, Step
from kernellab.evolve.state import RunState
from kernellab.sketch.check import check
from kernellab.sketch.rewrite import Features, features
from kernellab.target import Target


@dataclass(frozen=True)
class Look:
    """What the free steps took, and why the last of them refused the candidate; "" where it goes on."""

    spent: tuple[Spent, ...] = ()
    refused: str = ""


@dataclass
class Novelty:
    """Keeps the features of what was seen in a run, and refuses what does not check or is nothing new."""

    target: Target
    _seen: dict[int, Features] = field(default_factory=dict)

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
        mine = self._of(proposal)
        if mine is None:
            return ""
        for number, other in state.proposals.items():
            if number == proposal.number or not other.sketch or number not in state.evaluations:
                continue
            theirs = self._of(other)
            if theirs is None:
                continue
            if theirs.key == mine.key:
                return f"It is candidate {number} but for names, or for sizes of the same power of two."
            if state.knobs.novelty < 1 and mine.like(theirs, state.knobs.novelty):
                return f"It is nearly candidate {number}."
        return ""

    def _of(self, proposal: Proposal) -> Features | None:
        if proposal.number not in self._seen:
            try:
                self._seen[proposal.number] = features(proposal.sketch)
            except SketchError:
                return None
        return self._seen[proposal.number]
