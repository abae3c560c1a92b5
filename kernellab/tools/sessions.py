"""Tools of design sessions: begin one, look at its turns, put work into it, decide."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from kernellab.agents.roles import players_of
from kernellab.errors import SessionError, counted
from kernellab.records import Author, Role
from kernellab.tools.context import Context
from kernellab.tools.records import MATERIAL, Files, Page, Request, Result, Sketch, ToolError
from kernellab.tools.results.fitting import page_of
from kernellab.tools.results.session import SessionResult, followed, session_result
from kernellab.tools.results.verdict import VerifyResult, told_turns, verdict_result
from kernellab.tools.tool import tool

if TYPE_CHECKING:
    from kernellab.session import Session, Turn

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

    ids, searches = sessions(context.workspace), runs(context.workspace)
    names = [id.rpartition("-")[0] for id in ids]
    # the name where it is one session's, as every other tool says it
    listed = [name if names.count(name) == 1 else id for name, id in zip(names, ids, strict=True)]
    return SessionsResult(
        summary=f"{counted(len(listed), 'session')} and {counted(len(searches), 'search', 'searches')}.",
        next="session_state shows one." if listed else "begin_session starts one.",
        sessions=listed[-50:],
        runs=searches[-50:],
    )


class BeginRequest(Request):
    task: str = Field(description="A task's Python file below the workspace.")
    dsl: str = Field(default="", description="triton, cpp or cuda_c; empty: triton with a GPU, else cpp.")
    name: str = Field(default="", description="The session's name; empty: the task's.")
    roles: dict[str, str] = Field(default_factory=dict, description="For example {'coder': 'human'}; empty: rules.")


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
    result = _rested(context, session, _nothing)
    return result.model_copy(update={
        "summary": f"{session.name} was there already, and none was begun: {became}. {result.summary}",
        "next": f"submit_sketch and submit_source go on with it; another name begins one. {result.next}",
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
    return session_result(context.session(request.session))


def _rested(
    context: Context, session: Session, end_it: Callable[[], None], placed: int = 0
) -> SessionResult:  # fmt: skip
    """The session once it rests, or after ``PATIENCE`` seconds; progress is each new turn. ``placed``: see
    :func:`session_result`. A call that is cancelled ends by ``end_it`` what it began."""
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
    return session_result(session, placed)


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
    result = _rested(context, session, _broken_off(session))
    if outcome := followed(session.state, before):
        result = result.model_copy(update={"summary": f"{outcome} {result.summary}"})
    player = {role.value: spec for role, spec in session.state.roles.items()}.get(request.to)
    if request.suggestion and player == "rules":
        words = f"Rules play the {request.to} and read no prose: your suggestion is in the journal alone. {result.next}"
        return result.model_copy(update={"next": words})
    return result


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
    return session_result(session)


class ForkRequest(SessionRequest):
    turn: int = Field(ge=1)


@tool(changes=True)
def fork_session(context: Context, request: ForkRequest) -> SessionResult:
    """Set a session's head to a turn and pause; what came after it stays in the tree. A person's pins and constraints
    stay: at a turn without them it is refused, and says which turns keep them."""
    session = context.session(request.session, resume=True)
    session.fork(request.turn, Author.MODEL)
    return session_result(session)
