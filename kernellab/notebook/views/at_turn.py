"""What held at a turn: the sketch, the source and the verdict that a line of turns ends with."""

from __future__ import annotations

from kernellab.records import Source, Verdict
from kernellab.session.record.records import Turn
from kernellab.session.record.state import State


def source_turn(state: State, at: str | None) -> Turn | None:
    """The turn whose source the line up to ``at`` ends with; None where a newer sketch has replaced it."""
    for turn in reversed(state.path(at)):
        if turn.candidate is not None:
            return turn
        if turn.sketch is not None and not turn.only_pins:
            return None
    return None


def source_at(state: State, at: str | None) -> Source | None:
    turn = source_turn(state, at)
    return turn.candidate.source if turn and turn.candidate else None


def verdict_turn(state: State, at: str | None) -> Turn | None:
    """The verification of what the line up to ``at`` ends with, which may have come later; None while that is not
    verified."""
    for turn in reversed(state.path(at)):
        if turn.verdict is not None:
            return turn
        if turn.candidate is not None:
            return state.verdict_of(turn.candidate.source.hash)
        if turn.sketch is not None and not turn.only_pins:
            return None
    return None


def verdict_at(state: State, at: str | None) -> Verdict | None:
    turn = verdict_turn(state, at)
    return turn.verdict if turn else None


def sketch_before(state: State, at: str | None) -> str:
    """The sketch that the one at ``at`` was made from, "" when it is the first of its line."""
    turn = state.sketch_turn(at) if at else None
    earlier = state.sketch_turn(turn.parent) if turn and turn.parent else None
    return (earlier.sketch or "") if earlier else ""


def source_before(state: State, at: str | None) -> Source | None:
    """The source that the one at ``at`` follows; None when it is the first of its line."""
    turn = source_turn(state, at)
    earlier = state.candidate(turn.parent) if turn and turn.parent else None
    return earlier.source if earlier else None


def looked_at(state: State, shown: str) -> str | None:
    """The turn that a view with ``shown`` looks at: that one, or the head."""
    return shown if shown in state.turns else state.head
