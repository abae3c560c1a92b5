"""A session's state as plain data for a view, and as lines for a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernellab.records import StageResult, Verdict
from kernellab.session.record.records import SessionStatus, Turn, TurnState
from kernellab.session.record.state import State


class Dumps:
    """Turns as plain data, each converted once: a finished turn does not change, and a session may have hundreds."""

    def __init__(self) -> None:
        self._made: dict[str, tuple[Turn, dict[str, Any]]] = {}

    def of(self, turn: Turn) -> dict[str, Any]:
        """The turn as plain data."""
        entry = self._made.get(turn.id)
        if entry is None or entry[0] is not turn:
            entry = self._made[turn.id] = (turn, turn.model_dump(mode="json"))
        return entry[1]


def as_dict(
    state: State, stages: Mapping[str, list[StageResult]], message: str, version: int, dumps: Dumps | None = None
) -> dict[str, Any]:
    """Return all data that a view draws, JSON-like; ``version`` increases with every change.

    ``turns`` are in order of number, each as :class:`~kernellab.session.Turn` plus ``on_path`` (whether it is in the
    head's line) and ``stages`` (of a running verification). ``best`` has its turn and its figures; ``refusals`` are the
    turns whose sketch broke a pin or a constraint. With ``dumps``, unchanged turns are shared between calls: do not
    modify them.
    """
    dumps = dumps or Dumps()
    path = {turn.id for turn in state.path()}
    candidate = state.candidate()
    design_turn = state.sketch_turn()
    verdict = next((t.verdict for t in state.up() if t.verdict), None)
    question = state.question if state.status is SessionStatus.WAITING else None
    return {
        "id": state.id,
        "name": state.created.name,
        "version": version,
        "status": state.status.value,
        "reason": state.reason,
        "message": message,
        "task": {"name": state.created.name, "text": state.created.text},
        "dsl": state.target.dsl if state.target else state.created.dsl or "",
        "target": target_words(state),
        "approval": state.approval,
        "roles": {role.value: spec for role, spec in state.roles.items()},
        "notes": {role.value: list(state.notes_for(role)) for role in state.notes},
        "max_turns": state.created.max_turns,
        "head": state.head,
        "turns": [
            {
                **dumps.of(turn),
                "on_path": turn.id in path,
                "stages": [stage.model_dump(mode="json") for stage in stages.get(turn.id, [])],
            }
            for turn in state.turns.values()
        ],
        "question": {**question.model_dump(mode="json"), "id": question.id} if question else None,
        "budget": state.budget,
        "refusals": [turn.id for turn in state.refusals],
        "sketch": design_turn.sketch if design_turn else None,
        "source": candidate.source.model_dump(mode="json") if candidate else None,
        "verdict": verdict.model_dump(mode="json") if verdict else None,
        "best": best_figures(state),
    }


def best_figures(state: State) -> dict[str, Any] | None:
    """The best kernel's figures as plain data; None if there is none."""
    best = state.best()
    if best is None:
        return None
    eager = best.verdict.against("eager")
    return {
        "turn": best.turn.id,
        "number": best.number,
        "candidate": best.candidate.id,
        "speedups": {c.baseline: c.speedup for c in best.verdict.comparisons},
        "speedup": best.verdict.speedup,
        "time_ms": best.verdict.time.median_ms if best.verdict.time else None,
        "baseline_ms": eager.baseline_time.median_ms if eager else None,
        "sol_ms": best.verdict.sol_ms,
        "label": best.verdict.label,
        "flags": best.verdict.flags,
        "trust": best.verdict.trust.value,
    }


def target_words(state: State) -> str:
    """The DSL, chip and backend in words."""
    target = state.target
    return f"{target.dsl} on {target.chip} ({target.backend})" if target else state.created.dsl or ""


def turn_line(turn: Turn) -> str:
    """One line for people: number, role, author, outcome."""
    prefix = f"{turn.number:>3} {turn.role.value:<9} {turn.author.value:<5}"
    if turn.state is TurnState.RUNNING:
        return f"{prefix} ..."
    return f"{prefix} {turn.seconds:6.2f} s  {outcome(turn)}{_passed_over(turn)}"


def _passed_over(turn: Turn) -> str:
    """The players of the role's list that did not answer; the turn's rationale gives the reasons."""
    return f" ({' and '.join(turn.passed_over)} gave no answer)" if turn.passed_over else ""


def stopped(turn: Turn) -> str:
    """The subject of a failed turn's error."""
    return "The task cannot be used." if turn.of_task else f"The {turn.role.value.capitalize()} could not go on."


def outcome(turn: Turn) -> str:
    """A turn's outcome in one line."""
    if turn.error:
        return turn.error
    if turn.only_pins:
        return turn.rationale
    if turn.verdict is not None:
        reused = f" (as turn {turn.reused.removeprefix('t')})" if turn.reused else ""
        return verdict_line(turn.verdict) + reused
    if turn.route is not None:
        return f"-> {turn.route.to.value}: {turn.route.suggestion or turn.route.reason}"
    if turn.gate is not None:
        return f"sketch {turn.gate.state.value}: {turn.gate.reason}"
    if turn.candidate is not None:
        return f"source {', '.join(turn.candidate.source.files)}"
    return turn.state.value


def verdict_line(verdict: Verdict) -> str:
    """A verdict in one line."""
    if not verdict.passed:
        return f"failed at {verdict.stage.value}: {verdict.reason}"
    figures = [c.text for c in verdict.comparisons]
    time = [f"{verdict.time.median_ms:.3g} ms"] if verdict.time else []
    summary = ", ".join([*figures, *time])
    return "passed: " + ("; ".join(filter(None, (summary, verdict.held))) or verdict.reason)
