"""Tools of design sessions: begin one, look at its turns, put work into it, decide."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, Field

from kernellab.agents.roles import players_of
from kernellab.errors import SessionError, counted
from kernellab.records import Author, GateState, Role, Verdict
from kernellab.session.record.obligations import obligations_at
from kernellab.tools.judging import VerifyResult, told_turns, verdict_result
from kernellab.tools.tool import MATERIAL, Context, Files, Page, Request, Result, Sketch, ToolError, page_of, tool

if TYPE_CHECKING:
    from kernellab.session import Question, Session, Turn
    from kernellab.session.record.state import State

_SESSION = "A session's name or id."
#: seconds that a tool waits for the turns that follow
PATIENCE = 120.0
#: so often it is looked whether the call was cancelled
_LOOK = 0.25
#: notes of agents that a role reads in each of its turns
MOST_NOTES = 12


class Nothing(Request):
    pass


class SessionsResult(Result):
    sessions: list[str]
    runs: list[str]


@tool()
def list_sessions(context: Context, request: Nothing) -> SessionsResult:
    """List the workspace's design sessions and searches, oldest first."""
    from kernellab.evolve.begin import runs
    from kernellab.session import sessions

    found, searches = sessions(context.workspace), runs(context.workspace)
    names = [one.rpartition("-")[0] for one in found]
    # the name where it is one session's, as every other tool says it
    found = [name if names.count(name) == 1 else one for name, one in zip(names, found, strict=True)]
    return SessionsResult(
        summary=f"{counted(len(found), 'session')} and {counted(len(searches), 'search', 'searches')}.",
        next="session_state shows one." if found else "begin_session starts one.",
        sessions=found[-50:],
        runs=searches[-50:],
    )


class BeginRequest(Request):
    task: str = Field(description="A task's Python file below the workspace.")
    dsl: str = Field(default="", description="triton, cpp or cuda_c; empty: triton with a GPU, else cpp.")
    name: str = Field(default="", description="The session's name; empty: the task's.")
    roles: dict[str, str] = Field(default_factory=dict, description="For example {'coder': 'human'}; empty: rules.")


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


def _player(context: Context, spec: str) -> str:
    """``spec``; a recording with its whole path. It lies in the workspace, as all that tools read."""
    kind, _, path = spec.strip().partition(":")
    if kind != "replay" or not (path := path.strip()):
        return spec
    if not isinstance(context.read(path), str):
        raise ToolError(f"There is no file {path} to replay.", "Give a path below the workspace.")
    return f"replay:{os.path.normpath(os.path.join(os.path.abspath(context.folder or context.workspace), path))}"


@tool(changes=True, opens=True)
def begin_session(context: Context, request: BeginRequest) -> SessionResult:
    """Begin a design session for a task, by rules unless roles say otherwise, and wait for its end or question. The
    same request under a name continues that session; another one is refused."""
    from kernellab.session import sessions
    from kernellab.session.request import DesignRequest
    from kernellab.session.start import begin

    task = context.task(request.task)
    _check_name(request.name or task.name, sessions(context.workspace))
    roles = {name: ">".join(_player(context, one) for one in players_of(spec)) for name, spec in request.roles.items()}
    before = set(sessions(context.workspace))
    with context.counted():
        session = begin(
            DesignRequest(
                task=task.text, dsl=request.dsl or None, name=request.name or task.name, roles=roles or None,
                workspace=context.workspace,
            ),
            take_name=False,
        )  # fmt: skip
    if session.id not in before:
        return _rested(context, session, session.stop)
    became = "shown as it is, and nothing was judged" if session.resting else "it continues"
    # one that was there already is not this call's to end
    found = _rested(context, session, _nothing)
    return found.model_copy(update={
        "summary": f"{session.name} was there already, and none was begun: {became}. {found.summary}",
        "next": f"submit_sketch and submit_source go on with it; another name begins one. {found.next}",
    })  # fmt: skip


def _check_name(name: str, known: Sequence[str]) -> None:
    """Raises ToolError: a session would have another name than this, or one that differs from a ``known`` session's in
    nothing but the case of its letters."""
    from kernellab.task import identifier

    if name != (plain := identifier(name)):
        raise ToolError(
            f"{name!r} is no name of a session: letters of ASCII, digits and _, which do not begin with a digit.",
            f"{plain!r} is one.",
        )
    names = {one.rpartition("-")[0] for one in known}
    if name not in names and (near := sorted(one for one in names if one.casefold() == name.casefold())):
        raise ToolError(f"There is a session {near[0]!r}, from which {name!r} is hard to tell.", "Give another name.")


class SessionRequest(Request):
    session: str = Field(description=_SESSION)


@tool()
def session_state(context: Context, request: SessionRequest) -> SessionResult:
    """The state of a session: its turns in a line each, what it asks, the best kernel."""
    return _state(context.session(request.session))


#: how an agent answers what a session asks; other questions are a person's
_ANSWERS = {
    Role.DESIGNER: "submit_sketch gives the sketch.", Role.CODER: "submit_source gives the code.",
    Role.CONDUCTOR: "propose_route says where the work goes.",
}  # fmt: skip


def _state(session: Session, placed: int = 0) -> SessionResult:
    """``placed`` is the number of a turn that the call put there: what became of it comes first."""
    from kernellab.session import QuestionKind, SessionStatus
    from kernellab.session.record.view import turn_line

    state = session.state
    turns = list(state.turns.values())
    best = state.best()
    question = state.question
    numbers = {t.id: t.number for t in turns}
    told = told_turns(state.created, turns)
    lines = [
        TurnLine(
            number=t.number, parent=numbers.get(t.parent or ""), role=t.role.value, author=t.author.value,
            line=turn_line(t)[:300],
        )
        for t in told
    ]  # fmt: skip
    asked, reason = (question.text if question else ""), session.reason
    head = state.standing()
    onto = state.turns[state.standing_on] if state.standing_on else None
    now = obligations_at(state, state.standing_on)
    holds = f"Keep {counted(len(now.lines), 'line')} of a person in each sketch (kept); only a person changes them."
    holds = holds if now.lines else ""
    mine = state.turn(placed) if placed else None
    outcome = _became(state, mine, told, head, session.resting) if mine is not None else ""
    if state.elsewhere:
        reason = "Until it rests there, what you submit is refused."
    elif state.cut_off and head is not None:
        goes_on = ", and it is verified then, too" if head.role is Role.VERIFIER else ""
        stands = f"What is submitted next stands on turn {onto.number}{goes_on}. " if onto else ""
        reason = f"The process that worked at turn {head.number} is gone. {stands}".strip()
    elif session.status is SessionStatus.PAUSED and head is not None:
        # its reason names what a person calls
        reason = f"What is submitted next stands on turn {(onto or head).number}."
    # what the Conductor says may quote a failure; its line says where the work goes
    if question is not None and question.kind is QuestionKind.ROUTE:
        asked = reason = ""
    elif question is not None and question.kind is QuestionKind.BRIEF and question.suggestion:
        asked = reason = f"The work of the {question.role.value} is asked for."
    elif head is not None and head.route is not None and head.author is not Author.HUMAN and question is None:
        reason = ""
    return SessionResult(
        summary=" ".join(filter(None, (outcome, f"{session.name}: {state.status_words}.", reason, holds))),
        name=session.name, head=onto.number if onto is not None else None, kept=list(now.lines),
        notes={role.value: list(state.notes_for(role)) for role, notes in state.notes.items() if notes},
        next="It still works: ask session_state again."
        if session.status is SessionStatus.RUNNING or state.elsewhere
        else f"turn_detail shows a turn's sketch, source or verdict. {MATERIAL}",
        status=state.status_words, turns=lines[-30:],
        question=" ".join(filter(None, (asked, _answer(question)))) if question is not None else "",
        best=f"Turn {best.number}: {_figures(best.verdict)}, {best.verdict.trust.value}." if best is not None else "",
        conditions=[*best.verdict.labels, *best.verdict.flags] if best is not None else [],
    )  # fmt: skip


def _figures(verdict: Verdict) -> str:
    """A passed verdict's figures; of one that was not timed, that it was not."""
    where = " in the interpreter" if verdict.marked("interpreted") else ""
    return verdict.text or f"right{where}, not timed"


def _became(state: State, mine: Turn, told: list[Turn], head: Turn | None, rests: bool) -> str:
    """What became of the turn that a call put there: its verdict, or why it has none. ``told`` are the turns as an
    agent sees them."""
    from kernellab.session import TurnState
    from kernellab.session.record.view import outcome

    after = [t for t in state.turns.values() if t.number > mine.number]
    verdicts = [t for t in after if t.role is Role.VERIFIER and _judges(state, t, mine)]
    judged = next((t for t in verdicts if t.verdict is not None), mine)
    at = "" if judged is mine else f" was judged at turn {judged.number}"
    said = f"Your turn {mine.number}{at}: {outcome(told[judged.number - 1]).removesuffix('.')}."
    if judged is not mine or mine.error or (mine.gate is not None and mine.gate.state is GateState.WRONG):
        return said
    # one that was overtaken continues, too
    running = next((t.number for t in verdicts if t.state in (TurnState.RUNNING, TurnState.SUPERSEDED)), 0)
    if running:
        return f"{said} It is judged at turn {running}, which continues." if rests and not state.cut_off else said
    over = next((t for t in after if t.by_tool or t.author is Author.HUMAN), None)
    if not rests or over is None or head is mine:
        return said
    who = "a person" if over.author is Author.HUMAN else "another client"
    return (
        f"{said} It was not judged: turn {over.number} of {who} came on top. fork_session at turn {mine.number}, or "
        "submit it again."
    )


def _judges(state: State, verifier: Turn, mine: Turn) -> bool:
    """Is the Verifier's turn about the code of ``mine``, or about what the session's Coder made of its sketch? Another
    client's work may stand between."""
    wrote = state.source_turn(verifier.id)
    if wrote is None or wrote is mine:
        return wrote is not None
    return not wrote.by_tool and state.sketch_turn(wrote.id) is mine


def _answer(question: Question) -> str:
    from kernellab.session import QuestionKind

    if question.kind is QuestionKind.BRIEF:
        return _ANSWERS.get(question.role, "")
    # each of them also continues by a turn from outside
    return "A person decides in the workbench; submit_sketch, submit_source or propose_route goes another way."


def _rested(
    context: Context, session: Session, end_it: Callable[[], None], placed: int = 0
) -> SessionResult:  # fmt: skip
    """The session once it rests, or after ``PATIENCE`` seconds; progress is each new turn. ``placed``: see _state. A
    call that is cancelled ends by ``end_it`` what it began."""
    from kernellab.session.record.view import turn_line

    told: list[str] = []

    def tell(changed: Session) -> None:
        turns = told_turns(changed.state.created, changed.turns)
        line = turn_line(turns[-1]) if turns else ""
        if line and told[-1:] != [line]:
            told.append(line)
            context.progress(line)

    end, until = session.subscribe(tell), time.monotonic() + PATIENCE
    try:
        while not session.resting and time.monotonic() < until:
            if context.cancel.is_set():
                end_it()
                break
            with suppress(SessionError):  # it still works
                session.wait(_LOOK)
    finally:
        end()
    if session.failure is not None:
        raise session.failure
    return _state(session, placed)


class TurnRequest(SessionRequest):
    turn: int = Field(ge=1, description="The turn's number.")
    what: Literal["sketch", "source", "verdict", "rationale"] = "verdict"
    file: str = Field(default="", description="A file of the source; empty: the one that holds the kernel.")
    page: int = Field(default=1, ge=1)


class TurnResult(Result):
    text: Page | None = None
    files: list[str] = Field(default_factory=list)
    verdict: VerifyResult | None = None


@tool()
def turn_detail(context: Context, request: TurnRequest) -> TurnResult:
    """One turn's sketch, source, verdict or rationale."""
    from kernellab.session.edits import main_file

    session = context.session(request.session)
    turn = session.state.turn(request.turn)
    head = f"Turn {turn.number}, {turn.role.value} by {turn.author.value}."
    if request.what == "verdict" and turn.verdict is not None:
        task = context.task(request.session)
        told = verdict_result(task, turn.verdict)
        told = told.model_copy(update={"next": "Improve it, or keep it."}) if told.passed else told
        return TurnResult(summary=head, next=MATERIAL, verdict=told)
    if request.what == "source" and turn.candidate is not None:
        source = turn.candidate.source
        name = request.file or main_file(source)
        if name not in source.files:
            raise ToolError(f"The source has no file {name!r}.", f"Its files: {', '.join(source.files)}.")
        text = page_of(source.files[name], request.page)
        return TurnResult(summary=head, next=MATERIAL, text=text, files=list(source.files))
    # a Conductor's reason quotes the failure that it is about
    rationale = "" if turn.route is not None and turn.author is not Author.HUMAN else turn.rationale or turn.error
    words = {"sketch": turn.sketch, "rationale": rationale}.get(request.what)
    if not words:
        raise ToolError(f"Turn {turn.number} has no {request.what}.", "session_state lists what each turn did.")
    return TurnResult(summary=head, next=MATERIAL, text=page_of(words, request.page))


class SubmitSketchRequest(SessionRequest):
    sketch: Sketch = Field(description="The sketch's text; it is a Designer's turn, and code and verdict follow.")


@tool(changes=True)
def submit_sketch(context: Context, request: SubmitSketchRequest) -> SessionResult:
    """Put a sketch into a session as a Designer's turn. The Coder and the Verifier follow."""
    session = context.session(request.session, resume=True)
    before = len(session.turns)
    with context.counted():
        session.edit_sketch(request.sketch, Author.MODEL)
    return _rested(
        context, session, _broken_off(session), _placed(session, before, lambda turn: turn.sketch == request.sketch)
    )


def _nothing() -> None:
    pass


def _broken_off(session: Session) -> Callable[[], None]:
    """Breaks off the turn that works, and pauses: what was submitted stays."""

    def end_it() -> None:
        with suppress(SessionError):  # no turn works
            session.cancel()

    return end_it


def _placed(session: Session, before: int, is_it: Callable[[Turn], bool]) -> int:
    """The number of the turn that a call put there after the first ``before``: others may do the same meanwhile. 0:
    it is not there yet."""
    return next((t.number for t in session.turns[before:] if t.by_tool and is_it(t)), 0)


class SubmitSourceRequest(SessionRequest):
    files: Files = Field(description="Files of the kernel by name; those that are not named stay.")


@tool(changes=True)
def submit_source(context: Context, request: SubmitSourceRequest) -> SessionResult:
    """Put code into a session as a Coder's turn. The Verifier follows."""
    if not request.files:
        raise ToolError("There is no file in it.", "Give files={'kernel.py': ...}.")
    session = context.session(request.session, resume=True)
    before = len(session.turns)
    with context.counted():
        session.edit_source(dict(request.files), Author.MODEL)

    def is_it(turn: Turn) -> bool:
        return turn.candidate is not None and request.files.items() <= turn.candidate.source.files.items()

    return _rested(context, session, _broken_off(session), _placed(session, before, is_it))


class RouteRequest(SessionRequest):
    to: Literal["coder", "designer", "finish", "stop"]
    suggestion: str = Field(default="", description="What that role should do.")


@tool(changes=True)
def propose_route(context: Context, request: RouteRequest) -> SessionResult:
    """Send a session's work to a role, with a suggestion: a Conductor's turn."""
    session = context.session(request.session, resume=True)
    before = len(session.turns)
    session.redirect(request.to, request.suggestion, Author.MODEL)
    found = _rested(context, session, _broken_off(session))
    if told := _followed(session.state, before):
        found = found.model_copy(update={"summary": f"{told} {found.summary}"})
    player = {role.value: spec for role, spec in session.state.roles.items()}.get(request.to)
    if request.suggestion and player == "rules":
        words = f"Rules play the {request.to} and read no prose: your suggestion is in the journal alone. {found.next}"
        return found.model_copy(update={"next": words})
    return found


def _followed(state: State, before: int) -> str:
    """What came of a route after the first ``before`` turns: the last verdict after it, and whose code that is about;
    "" where none came."""
    from kernellab.session.record.view import outcome

    turns = list(state.turns.values())
    told = told_turns(state.created, turns)
    mine = next((t for t in turns[before:] if t.route is not None and t.by_tool), None)
    judged = next((t for t in reversed(turns[before:]) if t.verdict is not None), None)
    if mine is None or judged is None or judged.number < mine.number:
        return ""
    wrote = state.source_turn(judged.id)
    of = f"turn {wrote.number} was judged at turn {judged.number}" if wrote is not None else f"turn {judged.number}"
    said = outcome(told[judged.number - 1]).removesuffix(".")
    return f"Your turn {mine.number} sent it to the {mine.route.to.value}; {of}: {said}." if mine.route else ""


class NoteRequest(SessionRequest):
    role: Literal["designer", "coder", "conductor"]
    text: str


@tool(changes=True)
def leave_note(context: Context, request: NoteRequest) -> SessionResult:
    """Leave a note that a role reads in each of its turns; rules read no prose."""
    if not request.text.strip():
        raise ToolError("The note is empty.", "Give its text.")
    session = context.session(request.session, resume=True)
    notes = session.state.notes.get(Role(request.role), ())
    if sum(note.author is Author.MODEL for note in notes) >= MOST_NOTES:
        raise ToolError(
            f"The {request.role} has {MOST_NOTES} notes of agents already.", "A person removes some in the workbench."
        )
    session.note(request.role, request.text, Author.MODEL)
    return _state(session)


class ForkRequest(SessionRequest):
    turn: int = Field(ge=1)


@tool(changes=True)
def fork_session(context: Context, request: ForkRequest) -> SessionResult:
    """Set a session's head to a turn and pause; what came after it stays in the tree. A person's pins and constraints
    stay: at a turn without them it is refused, and says which turns keep them."""
    session = context.session(request.session, resume=True)
    session.fork(request.turn, Author.MODEL)
    return _state(session)
