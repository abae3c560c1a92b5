"""Objects that a Session returns, with their own display: plain text here, HTML in the notebook."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kernellab.records import Candidate, Verdict
from kernellab.session.record.records import Turn
from kernellab.session.record.state import State
from kernellab.session.record.view import turn_line, verdict_line


class SketchText(str):
    """A sketch's text; displayed verbatim."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self).rstrip()


class Turns(tuple[Turn, ...]):
    """Turns by number; displayed one per line."""

    state: State

    @classmethod
    def of(cls, state: State) -> Turns:
        turns = cls(state.turns.values())
        turns.state = state
        return turns

    def __repr__(self) -> str:
        return "\n".join(map(turn_line, self)) or "no turns yet"


@dataclass(frozen=True)
class CandidateShown:
    """A kernel of the session: ``number`` is the turn that wrote it; ``verdict`` is None if it is not verified."""

    number: int
    candidate: Candidate
    verdict: Verdict | None
    best: bool

    def __repr__(self) -> str:
        result = verdict_line(self.verdict) if self.verdict else "not verified"
        return f"{self.number:>3} {self.candidate.author.value:<5} {result}{'  (best)' if self.best else ''}"


class Candidates(tuple[CandidateShown, ...]):
    """A session's kernels by number; displayed one per line."""

    def __repr__(self) -> str:
        return "\n".join(map(repr, self)) or "no candidates yet"


def candidates_of(state: State) -> Candidates:
    """Every kernel of the session, with its verdict."""
    best = state.best()
    verdicts = {turn.parent: turn.verdict for turn in state.turns.values() if turn.verdict is not None}
    return Candidates(
        CandidateShown(
            turn.number, turn.candidate, verdicts.get(turn.id), best is not None and best.number == turn.number
        )
        for turn in _by_number(state.turns.values())
        if turn.candidate is not None
    )


def _by_number(turns: Iterable[Turn]) -> list[Turn]:
    return sorted(turns, key=lambda turn: turn.number)
