"""What the live view draws: a pure function of a session's state and of the turn that is looked at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from kernellab.notebook.verdict import BASELINES, TRUST_WORDS, headline, seconds, stage_rows, verdict_state
from kernellab.records import GateResult, Role, Source, StageResult, Verdict
from kernellab.session.edits import main_file
from kernellab.session.records import Question, QuestionKind, SessionStatus, Turn, TurnState
from kernellab.session.state import State
from kernellab.session.view import outcome, target_words

#: characters of a build or run log that travel to the front end; the verdict keeps it all
LOG_LIMIT = 20_000
NOTHING_RUNS: Mapping[str, Sequence[StageResult]] = MappingProxyType({})

STATUS_WORDS = {
    SessionStatus.RUNNING: "running",
    SessionStatus.PAUSED: "paused",
    SessionStatus.WAITING: "waiting for you",
    SessionStatus.FINISHED: "finished",
    SessionStatus.STOPPED: "stopped",
    SessionStatus.FAILED: "failed",
}
#: roles that a person may take over; the Verifier is nobody's to play
PLAYED = (Role.DESIGNER, Role.CODER, Role.CONDUCTOR)


def view_state(
    state: State, shown: str = "", stages: Mapping[str, Sequence[StageResult]] = NOTHING_RUNS
) -> dict[str, Any]:
    """Plain data for the front end; ``shown`` is a turn's id, "" for the head.

    ``stages`` are those that a running verification has behind it, by turn.
    """
    at = shown if shown in state.turns else state.head
    sketch_turn = state.sketch_turn(at)
    source = source_at(state, at)
    verdict = verdict_at(state, at)
    best = state.best()
    return {
        "name": state.created.name,
        "subtitle": target_words(state),
        "headline": headline(best.verdict) if best else "",
        "headline_title": headline_title(best.verdict) if best else "",
        "status": state.status.value,
        "status_text": STATUS_WORDS[state.status],
        "current": state.head or "",
        "turns": turn_rows(state),
        "sketch_notes": gate_notes(sketch_turn.gate) if sketch_turn else [],
        "main_file": main_file(source) if source else "",
        "verdict": verdict_state(verdict) if verdict else None,
        "stages": stage_rows(stages.get(at or "", ())),
        "card": card(state, at),
        "can": can(state),
        "approve": state.approval,
        "roles": {role.value.capitalize(): state.roles.get(role, "rules") for role in PLAYED},
        "error": state.reason if state.status is SessionStatus.FAILED else "",
    }


def view_texts(state: State, shown: str = "") -> dict[str, Any]:
    """What is long and changes seldom, apart from the rest so that a progressing turn does not send it again."""
    at = shown if shown in state.turns else state.head
    sketch_turn = state.sketch_turn(at)
    source = source_at(state, at)
    verdict = verdict_at(state, at)
    evidence = verdict.evidence if verdict else None
    return {
        "sketch": (sketch_turn.sketch or "") if sketch_turn else "",
        "files": dict(source.files) if source else {},
        "reproduction": evidence.reproduction if evidence else "",
        "log": evidence.log[-LOG_LIMIT:] if evidence else "",
    }


def headline_title(verdict: Verdict) -> str:
    """The headline's numbers with their baselines, intervals, trust level and machine, in words."""
    lines = [
        f"{c.speedup:.2f} times as fast as {BASELINES.get(c.baseline, c.baseline)} (95 %: {c.low:.2f} to {c.high:.2f})"
        for c in verdict.comparisons
    ]
    return "\n".join([*lines, TRUST_WORDS[verdict.trust], verdict.environment.chip]).strip()


def can(state: State) -> dict[str, bool]:
    """Which buttons do something in this state."""
    goes_on = state.status not in (SessionStatus.RUNNING, SessionStatus.FINISHED)
    return {
        "step": goes_on,
        "run": goes_on,
        "pause": state.status is SessionStatus.RUNNING,
        "fork": bool(state.turns),
        "stop": not state.status.ended,
    }


# -- turns -------------------------------------------------------------------------------------------------------------


def turn_rows(state: State) -> list[dict[str, Any]]:
    """One row a turn in the order they were begun; a turn that is not its parent's first child is set in."""
    rows: list[dict[str, Any]] = []
    depth: dict[str | None, int] = {None: 0}
    begun = set[str | None]()
    for turn in state.turns.values():
        depth[turn.id] = depth.get(turn.parent, 0) + (turn.parent in begun)
        begun.add(turn.parent)
        rows.append(
            {
                "id": turn.id,
                "number": turn.number,
                "role": turn.role.value.capitalize(),
                "author": turn.author.value,
                "state": turn_mark(turn, state.question),
                "seconds": seconds(turn.seconds),
                "note": "" if turn.state is TurnState.RUNNING else outcome(turn),
                "depth": min(depth[turn.id], 6),
                "title": "\n".join(filter(None, [f"turn {turn.number}", turn.rationale, turn.note, turn.error])),
            }
        )
    return rows


def turn_mark(turn: Turn, question: Question | None) -> str:
    if turn.state is TurnState.SUPERSEDED:
        return "skipped"
    if turn.state is TurnState.RUNNING:
        return "running"
    if turn.verdict is not None:
        return "passed" if turn.verdict.passed else "failed"
    if turn.state is TurnState.FAILED or (turn.gate is not None and turn.gate.state.value == "wrong"):
        return "failed"
    asked = question is not None and question.turn == turn.id and question.kind is not QuestionKind.BRIEF
    return "waiting" if asked else "done"


# -- parts -------------------------------------------------------------------------------------------------------------


def source_at(state: State, at: str | None) -> Source | None:
    """The source that the line of turns up to ``at`` ends with, unless a newer sketch has replaced it."""
    for turn in reversed(state.path(at)):
        if turn.candidate is not None:
            return turn.candidate.source
        if turn.sketch is not None:
            return None
    return None


def verdict_at(state: State, at: str | None) -> Verdict | None:
    """The verdict on what the line up to ``at`` ends with; None while that is not verified."""
    for turn in reversed(state.path(at)):
        if turn.verdict is not None:
            return turn.verdict
        if turn.candidate is not None or turn.sketch is not None:
            return None
    return None


def gate_notes(gate: GateResult | None) -> list[str]:
    """The gate's answer, then each diagnostic with its place."""
    if gate is None:
        return []
    found = [f"{d.severity} {d.line}:{d.col} {d.code} {d.message} {d.remedy}".strip() for d in gate.diagnostics]
    return [f"{'error: ' if gate.state.value == 'wrong' else ''}{gate.reason}", *found]


def card(state: State, at: str | None) -> dict[str, Any] | None:
    """What the session asks or, looking back, what the Conductor proposed."""
    question = state.question
    if question is not None and state.status is SessionStatus.WAITING and at == state.head:
        asked = state.turns.get(question.turn or "")
        route = asked.route if asked else None
        return {
            "id": f"{question.turn}:{question.kind.value}",
            "kind": question.kind.value,
            "title": f"The Conductor proposes: {route.to.value}." if route else f"{question.role.value.capitalize()}:",
            "text": route.reason if route else question.text,
            "hint": question.answer,
            "evidence": list(route.evidence) if route else [],
            "to": question.to.value if question.to else None,
            "suggestion": question.suggestion,
            "pending": True,
            "editable": question.kind is QuestionKind.ROUTE,
        }
    turn = state.turns.get(at or "")
    if turn is None or turn.route is None:
        return None
    return {
        "id": turn.id,
        "kind": QuestionKind.ROUTE.value,
        "title": f"The Conductor proposed: {turn.route.to.value}.",
        "text": turn.route.reason,
        "hint": turn.route.suggestion,
        "evidence": list(turn.route.evidence),
        "to": turn.route.to.value,
        "suggestion": turn.route.suggestion,
        "pending": False,
        "editable": False,
    }
