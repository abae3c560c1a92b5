"""Begins a session, or finds the one that the same call began earlier."""

from __future__ import annotations

import ast
import threading
import uuid
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Concatenate, ParamSpec

from kernellab import python_tree
from kernellab.agents.roles import Roles, parse_roles
from kernellab.dsls import get_adapter
from kernellab.errors import SessionError, TaskError
from kernellab.models.exchanges import Exchange
from kernellab.options import build, signature_of
from kernellab.options.memory import memory_defaults
from kernellab.records import Role
from kernellab.session.config import check_model, defaults
from kernellab.session.engine.approval import Stops, policy_of
from kernellab.session.engine.engine import engine
from kernellab.session.record.events import Created, Exchanged
from kernellab.session.record.fold import fold
from kernellab.session.record.journal import Journal, find_workspace, open_journal
from kernellab.session.record.records import SessionStatus
from kernellab.session.record.state import State
from kernellab.session.request import DesignRequest
from kernellab.session.session import Session
from kernellab.session.turn.context import Bench
from kernellab.session.turn.quoting import quoted
from kernellab.task import Task, identifier, read_task

_LIVE: dict[tuple[Path, str], Session] = {}
_LOCK = threading.RLock()


def begin(request: DesignRequest, *, take_name: bool = True) -> Session:
    """Start designing a kernel for the request's task and return at once.

    The same call again returns the same session, which continues where it stopped. A changed call, or ``fresh``,
    starts a new session of that name and keeps the old one.

    Raises:
        TaskError, TargetError, SessionError: the call is invalid. An error that appears only when the task runs ends
            the session instead, and :meth:`Session.wait` raises it.
    """
    # take_name: whether a person's session of that name may give it up
    place = Path(request.workspace) if request.workspace is not None else find_workspace()
    request = request.filled(defaults(place))
    if "memory" not in request.model_fields_set:
        request = request.model_copy(update={"memory": memory_defaults(place).use})
    text, name, given_task = task_text(request.task, request.name)
    _check_task(text)
    specs, objects = parse_roles(request.roles)
    request.check(specs)
    for role, spec in specs.items():
        check_model(role, spec, place, request.budget)
    approval, stops = policy_of(request.approve)
    created = request.created(name, text, specs, approval)
    journal = open_journal(place)
    with _LOCK:
        repeated = None if request.fresh else _latest(journal, name, created.key)
        newest = _latest(journal, name)
        if newest is not None and repeated is None and not take_name:
            raise SessionError(
                f"A session {name} is there already, for another task, DSL or roles.", "Give this one another name."
            )
        if repeated is not None and repeated.status is not SessionStatus.FAILED:
            session = open_session(repeated.id, journal.workspace, objects=objects, stops=stops)
            if not repeated.status.ended and session.state.approval != approval:
                session.set_approval(request.approve or approval)
        else:
            bench = Bench(created, objects, given_task, None, journal.workspace)
            session = _begin(journal, created, newest, bench, stops, request.asked)
        if session.state.budget != created.budget:
            session.set_budget(created.budget)
    if request.compare:
        session.timings.compare_when_done()
    return session.wait() if request.wait else session


P = ParamSpec("P")


def _called_as(record: Callable[P, DesignRequest]) -> Callable[Concatenate[str | Path | Task, P], Session]:
    """Return ``begin`` with the task and the record's fields as arguments, so that they are listed once."""
    signature = signature_of(DesignRequest, "str | Path | Task", Session)

    def design(*args: Any, **kwargs: Any) -> Session:
        return begin(build(DesignRequest, signature.bind(*args, **kwargs).arguments, SessionError))

    design.__doc__ = begin.__doc__
    design.__module__ = __name__
    design.__signature__ = signature  # type: ignore[attr-defined]
    return design


#: ``design(task, dsl=..., ...)``: a session for the :class:`DesignRequest` of these arguments.
design = _called_as(DesignRequest)


def open_session(
    session_id: str,
    workspace: str | Path | None = None,
    resume: bool = True,
    *,
    objects: Mapping[Role, Any] | None = None,
    stops: Stops | None = None,
) -> Session:
    """Return a session of the journal by id, or the newest of that name; a cut-off one continues if ``resume``.

    Raises:
        SessionError: there is no such session.
    """
    journal = open_journal(Path(workspace) if workspace is not None else find_workspace())
    with _LOCK:
        state = _load(journal, session_id) or _latest(journal, session_id)
        if state is None:
            names = sorted({session_key.rpartition("-")[0] for session_key in journal.sessions()})
            advice = f"Name one of {', '.join(names[:12])}{' ...' if len(names) > 12 else ''}, or go" if names else "Go"
            raise SessionError(
                f"There is no session {session_id!r} in {journal.path}.",
                f"{advice} to the folder that you designed it in.",
            )
        place = journal.path, state.id
        if place not in _LIVE:
            _LIVE[place] = Session(journal, state.id, _bench(state, objects, journal), stops, resume)
        if resume:
            _LIVE[place].resume()
        return _LIVE[place]


def sessions(workspace: str | Path | None = None) -> list[str]:
    """Ids of the workspace's sessions, oldest first; an id is a name and a suffix."""
    return open_journal(Path(workspace) if workspace is not None else find_workspace()).sessions()


def _bench(state: State, objects: Mapping[Role, Any] | None, journal: Journal) -> Bench:
    return Bench(state.created, objects or {}, None, None, journal.workspace)


def _begin(
    journal: Journal, created: Created, earlier: State | None, bench: Bench, stops: Stops | None,
    asked: Iterable[Exchange],
) -> Session:  # fmt: skip
    if earlier is not None:
        created = created.model_copy(update={"previous": earlier.id})
    session_id = f"{created.name}-{uuid.uuid4().hex[:8]}"
    owner = engine()
    owner.hold(journal, session_id)
    journal.append(session_id, owner.owner, [created, *(Exchanged(turn="", exchange=exchange) for exchange in asked)])
    session = _LIVE[journal.path, session_id] = Session(journal, session_id, bench, stops)
    return session


def _latest(journal: Journal, name: str, key: str | None = None) -> State | None:
    """Return the newest session of that name; with ``key``, the newest that the same call began."""
    for session_id in reversed(journal.sessions()):
        if session_id.rpartition("-")[0] == name and (key is None or _key_of(journal, session_id) == key):
            return _load(journal, session_id)
    return None


def _key_of(journal: Journal, session_id: str) -> str:
    first = journal.first(session_id)
    return first.key if isinstance(first, Created) else ""


def _load(journal: Journal, session_id: str) -> State | None:
    return fold(session_id, (event for _, event in journal.read(session_id)))


def task_text(task: str | Path | Task, name: str | None) -> tuple[str, str, Task | None]:
    """Return a task's text and name, and the Task object if one was given. Raises TaskError."""
    if not isinstance(task, (str, Path)):
        return task.text, name or task.name, task if name in (None, task.name) else None
    text, task_name = read_task(task, name)
    return text, identifier(name or task_name), None


def _check_task(text: str) -> None:
    """Check, without running the text, that it parses and defines what a task needs."""
    try:
        tree = python_tree.parse(text)
    except SyntaxError as error:
        raise TaskError(
            quoted(f"The task has a syntax error at line {error.lineno}: {error.msg}.", text), "Correct that line."
        ) from None
    names = {name for node in tree.body for name in _bound(node)}
    if "*" in names or {"reference", "inputs"} <= names or {"Model", "get_inputs"} <= names:
        return
    if "reference" in names or "inputs" in names:
        missing = "inputs" if "reference" in names else "reference"
        raise TaskError(f"The task does not define {missing}(...).", "Define reference(...) and inputs(...) in it.")
    if "Model" in names:
        raise TaskError("The task defines Model but no get_inputs().", "Define get_inputs() next to the Model.")
    raise TaskError(
        "The task does not define a reference.", "Define reference(...) and inputs(...), or Model and get_inputs()."
    )


def _bound(node: ast.stmt) -> list[str]:
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return [node.name]
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return [(alias.asname or alias.name).partition(".")[0] for alias in node.names]
    return [name.id for name in ast.walk(node) if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)] + [
        inner.name for inner in ast.walk(node) if isinstance(inner, (ast.FunctionDef, ast.ClassDef))
    ]


def check_coder(dsl: str | None, roles: Roles = None) -> None:
    """Check that a Coder writes ``dsl``, before a design begins. Rules write DSLs with a lowering; models and persons
    write documented DSLs. Arguments that are not given come from ``kernellab.toml``.

    Raises:
        SessionError, TargetError: the role or DSL is unknown, or the rules Coder does not write the DSL.
    """
    from kernellab.lowering import lowered_dsls

    configured = defaults(find_workspace())
    dsl = dsl if dsl is not None else configured.dsl
    specs, _ = parse_roles(roles if roles is not None else configured.roles)
    if dsl is not None and get_adapter(dsl).name not in lowered_dsls() and specs[Role.CODER] == "rules":
        dsls = lowered_dsls()
        raise SessionError(
            f"The rules Coder does not write {dsl}.",
            f"Choose --dsl {', '.join(dsls[:-1])} or {dsls[-1]}, or --roles coder=model; a kernel of yours is "
            "judged by kernellab verify.",
        )
