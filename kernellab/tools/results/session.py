"""A design session as a tool tells it: its turns in a line each, why it waits, what became of the caller's turn."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pydantic import BaseModel, Field

from kernellab.errors import counted
from kernellab.records import Author, GateState, Role, Verdict
from kernellab.session.record.obligations import obligations_at
from kernellab.tools.records import MATERIAL, Result
from kernellab.tools.results.verdict import told_turns

if TYPE_CHECKING:
    from kernellab.session import Question, Session, Turn
    from kernellab.session.record.state import State

#: characters of a turn's line, and turns that are listed: the newest
_MOST_LINE, _MOST_TURNS = 300, 30
#: how an agent answers what a session asks; other questions are a person's
_ANSWERS = {
    Role.DESIGNER: "submit_sketch gives the sketch.", Role.CODER: "submit_source gives the code.",
    Role.CONDUCTOR: "propose_route says where the work goes.",
}  # fmt: skip


class TurnLine(BaseModel):
    number: int
    parent: int | None = Field(description="The turn that it stands on.")
    role: str
    author: str
    line: str


class SessionResult(Result):
    name: str
    status: str
    turns: list[TurnLine]
    head: int | None = Field(description="The turn on which what comes next stands.")
    notes: dict[str, list[str]] = Field(description="What each role reads in each of its turns.")
    kept: list[str] = Field(
        default_factory=list, description="A person's lines: a sketch that is submitted keeps them, and their marks."
    )
    question: str = Field(default="", description="What the session asks, where it waits.")
    best: str = Field(default="", description="Figures of the fastest verified kernel.")
    conditions: list[str] = Field(
        default_factory=list, description="What these figures hold for, and what was noticed."
    )


def session_result(session: Session, placed: int = 0) -> SessionResult:
    """``placed`` is the number of a turn that the call put there: what became of it comes first."""
    from kernellab.session import SessionStatus
    from kernellab.session.record.view import turn_line

    state = session.state
    turns = list(state.turns.values())
    told = told_turns(state.created, turns)
    numbers = {turn.id: turn.number for turn in turns}
    lines = [
        TurnLine(
            number=turn.number, parent=numbers.get(turn.parent or ""), role=turn.role.value, author=turn.author.value,
            line=turn_line(turn)[:_MOST_LINE],
        )
        for turn in told
    ]  # fmt: skip
    head = state.turns[state.standing_on] if state.standing_on else None
    persons_lines = obligations_at(state, state.standing_on).lines
    keep = f"Keep {counted(len(persons_lines), 'line')} of a person in each sketch (kept); only a person changes them."
    own_turn = state.turn(placed) if placed else None
    status = f"{session.name}: {state.status_words}."
    outcome = _became(state, own_turn, told, session.resting) if own_turn is not None else ""
    waiting = _waits_for(session, state, head)
    works = session.status is SessionStatus.RUNNING or state.elsewhere
    best = state.best()
    return SessionResult(
        summary=" ".join(filter(None, (outcome, status, waiting.reason, keep if persons_lines else ""))),
        name=session.name, head=head.number if head is not None else None, kept=list(persons_lines),
        notes={role.value: list(state.notes_for(role)) for role, notes in state.notes.items() if notes},
        next="It still works: ask session_state again."
        if works
        else f"turn_detail shows a turn's sketch, source or verdict. {MATERIAL}",
        status=state.status_words, turns=lines[-_MOST_TURNS:], question=waiting.question,
        best=f"Turn {best.number}: {_figures(best.verdict)}, {best.verdict.trust.value}." if best is not None else "",
        conditions=[*best.verdict.labels, *best.verdict.flags] if best is not None else [],
    )  # fmt: skip


class _Waiting(NamedTuple):
    """Why a session rests or works, and what it asks, in sentences; each may be empty."""

    reason: str
    question: str


def _waits_for(session: Session, state: State, head: Turn | None) -> _Waiting:
    """``head`` is the turn on which what is submitted next stands."""
    from kernellab.session import QuestionKind, SessionStatus

    question = state.question
    last = state.standing()
    asked = question.text if question else ""
    if state.elsewhere:
        reason = "Until it rests there, what you submit is refused."
    elif state.cut_off and last is not None:
        judged = ", and it is verified then, too" if last.role is Role.VERIFIER else ""
        stands = f"What is submitted next stands on turn {head.number}{judged}. " if head else ""
        reason = f"The process that worked at turn {last.number} is gone. {stands}".strip()
    elif session.status is SessionStatus.PAUSED and last is not None:
        # its reason names what a person calls
        reason = f"What is submitted next stands on turn {(head or last).number}."
    else:
        # what the Conductor says may quote a failure; its line says where the work goes
        is_route = last is not None and last.route is not None and last.author is not Author.HUMAN
        reason = "" if is_route and question is None else state.reason
    if question is None:
        return _Waiting(reason, "")
    if question.kind is QuestionKind.ROUTE:
        asked = reason = ""
    elif question.kind is QuestionKind.BRIEF and question.suggestion:
        asked = reason = f"The work of the {question.role.value} is asked for."
    return _Waiting(reason, " ".join(filter(None, (asked, _answer(question)))))


def _figures(verdict: Verdict) -> str:
    """A passed verdict's figures; of one that was not timed, that it was not."""
    where = " in the interpreter" if verdict.marked("interpreted") else ""
    return verdict.text or f"right{where}, not timed"


def _became(state: State, own_turn: Turn, told: list[Turn], rests: bool) -> str:
    """What became of the turn that a call put there: its verdict, or why it has none. ``told`` are the turns as an
    agent sees them."""
    from kernellab.session import TurnState
    from kernellab.session.record.view import outcome

    after = [t for t in state.turns.values() if t.number > own_turn.number]
    verdicts = [t for t in after if t.role is Role.VERIFIER and _judges(state, t, own_turn)]
    judged = next((t for t in verdicts if t.verdict is not None), own_turn)
    at = "" if judged is own_turn else f" was judged at turn {judged.number}"
    said = f"Your turn {own_turn.number}{at}: {outcome(told[judged.number - 1]).removesuffix('.')}."
    is_wrong = own_turn.gate is not None and own_turn.gate.state is GateState.WRONG
    if judged is not own_turn or own_turn.error or is_wrong:
        return said
    # one that was overtaken continues, too
    running = next((t.number for t in verdicts if t.state in (TurnState.RUNNING, TurnState.SUPERSEDED)), 0)
    if running:
        return f"{said} It is judged at turn {running}, which continues." if rests and not state.cut_off else said
    on_top = next((t for t in after if t.by_tool or t.author is Author.HUMAN), None)
    if not rests or on_top is None or state.standing() is own_turn:
        return said
    who = "a person" if on_top.author is Author.HUMAN else "another client"
    return (
        f"{said} It was not judged: turn {on_top.number} of {who} came on top. fork_session at turn "
        f"{own_turn.number}, or submit it again."
    )


def _judges(state: State, verifier: Turn, own_turn: Turn) -> bool:
    """Is the Verifier's turn about the code of ``own_turn``, or about what the session's Coder made of its sketch?
    Another client's work may stand between."""
    wrote = state.source_turn(verifier.id)
    if wrote is None or wrote is own_turn:
        return wrote is not None
    return not wrote.by_tool and state.sketch_turn(wrote.id) is own_turn


def _answer(question: Question) -> str:
    from kernellab.session import QuestionKind

    if question.kind is QuestionKind.BRIEF:
        return _ANSWERS.get(question.role, "")
    # each of them also continues by a turn from outside
    return "A person decides in the workbench; submit_sketch, submit_source or propose_route goes another way."


def followed(state: State, before: int) -> str:
    """What came of a route after the first ``before`` turns: the last verdict after it, and whose code that is about;
    "" where none came."""
    from kernellab.session.record.view import outcome

    turns = list(state.turns.values())
    told = told_turns(state.created, turns)
    route_turn = next((t for t in turns[before:] if t.route is not None and t.by_tool), None)
    judged = next((t for t in reversed(turns[before:]) if t.verdict is not None), None)
    if route_turn is None or route_turn.route is None or judged is None or judged.number < route_turn.number:
        return ""
    wrote = state.source_turn(judged.id)
    at = f"turn {judged.number}"
    judged_code = f"turn {wrote.number} was judged at {at}" if wrote is not None else at
    said = outcome(told[judged.number - 1]).removesuffix(".")
    return f"Your turn {route_turn.number} sent it to the {route_turn.route.to.value}; {judged_code}: {said}."
