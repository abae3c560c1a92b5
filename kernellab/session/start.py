"""Begins a session, or finds the one that the same call began before."""

from __future__ import annotations

import ast
import hashlib
import json
import threading
import uuid
from collections.abc import Iterable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from kernellab.agents.briefs import ABLATIONS
from kernellab.agents.roles import Roles, is_model, parse_roles
from kernellab.dsls import get_adapter
from kernellab.errors import SessionError, TargetError, TaskError
from kernellab.models import Budget
from kernellab.records import Exchange, Role, Source
from kernellab.session.bench import Bench
from kernellab.session.config import check_model, defaults
from kernellab.session.engine import engine
from kernellab.session.journal import Journal, find_workspace, open_journal
from kernellab.session.records import Created, Exchanged
from kernellab.session.session import Session, approval_of
from kernellab.session.state import State, fold
from kernellab.session.steps import Stops

if TYPE_CHECKING:
    from kernellab.task import Task

#: what a call could not say at first, and what it means then
_LATER: dict[str, object] = {"lift": False, "improve": None, "ablation": (), "tune": 0}

_LIVE: dict[tuple[Path, str], Session] = {}
_LOCK = threading.RLock()


def design(
    task: str | Path | Task,
    dsl: str | None = None,
    roles: Roles = None,
    approve: str | Stops | None = None,
    name: str | None = None,
    max_turns: int | None = None,
    workspace: str | Path | None = None,
    wait: bool = False,
    *,
    chip: str | None = None,
    constexpr: Mapping[str, int | float] | None = None,
    options: Mapping[str, Any] | None = None,
    sketch: str | None = None,
    source: Source | None = None,
    lift: bool = False,
    fresh: bool = False,
    compare: bool = False,
    budget: str | None = None,
    improve: bool | None = None,
    ablation: Iterable[str] = (),
    tune: int = 0,
    asked: Iterable[Exchange] = (),
) -> Session:
    """Start designing a kernel for ``task`` (a module text, a path, or a Task) and return at once.

    The same call made again gives the same session, which goes on where it stopped; a changed one starts a new
    session of that name and keeps the old, and so does ``fresh``. ``approve`` is none, routing, all, or a predicate
    on a finished turn. ``constexpr`` sets constants of every sketch; ``options`` are the verifier's, by name;
    ``sketch`` or ``source`` is what a person already has; with ``lift`` the Designer, a model, begins by lifting a
    sketch from the source. ``compare`` times a finished session's best against torch.compile too, in the background.
    ``budget`` limits what is spent ("tokens=200000,usd=1,minutes=30,gpu_s=600"). ``improve`` goes on after a kernel
    passed, while there is headroom; by default when a model designs or codes. ``ablation`` leaves parts of the method
    out (:data:`kernellab.agents.briefs.ABLATIONS`). With ``tune`` the rules Designer measures so many points of its
    schedules and takes the fastest. ``asked`` are exchanges that led to the task. ``wait`` blocks
    until it ends or needs a person. What is not given is taken from ``[session]`` of ``kernellab.toml``.

    Raises:
        TaskError, TargetError, SessionError: the call itself is wrong. What only running the task can show ends the
            session instead, and :meth:`Session.wait` raises it.
    """
    place = Path(workspace) if workspace is not None else find_workspace()
    usual = defaults(place)
    dsl = dsl if dsl is not None else usual.dsl
    approve = approve if approve is not None else usual.approve
    max_turns = max_turns if max_turns is not None else usual.max_turns
    budget = budget if budget is not None else usual.budget or ""
    text, name, given = _task_text(task, name)
    _check_task(text)
    _check_target(dsl)
    specs, objects = parse_roles(roles if roles is not None else usual.roles)
    for role, spec in specs.items():
        check_model(role, spec, place)
    approval, stops = approval_of(approve)
    _check_options(options or {})
    Budget.parse(budget)
    if max_turns < 1:
        raise SessionError(f"max_turns is {max_turns}.", "Allow at least one turn.")
    if unknown := sorted(set(ablation) - set(ABLATIONS)):
        raise SessionError(f"There is no part {unknown[0]!r} to leave out.", f"There is {', '.join(ABLATIONS)}.")
    if lift and not is_model(specs[Role.DESIGNER]):
        raise SessionError("Lifting a sketch from a source takes a model as Designer.", "Give roles='designer=model'.")
    created = Created(
        name=name,
        text=text,
        key="",
        dsl=dsl,
        chip=chip,
        roles=specs,
        approval=approval,
        max_turns=max_turns,
        constexpr=dict(constexpr or {}),
        options=dict(options or {}),
        start_sketch=sketch,
        start_source=source,
        lift=lift,
        budget=budget,
        improve=improve if improve is not None else usual.improve,
        ablation=tuple(sorted(set(ablation))),
        tune=tune,
        version=_version(),
    )
    created = created.model_copy(update={"key": _key(created)})
    journal = open_journal(place)
    with _LOCK:
        newest = _latest(journal, name)
        again = None if fresh else _latest(journal, name, created.key)
        earlier, same = again or newest, again is not None
        if earlier is not None and same and not earlier.status.ended:
            session = open_session(earlier.id, journal.workspace, objects=objects, stops=stops)
            if session.state.approval != approval:
                session.set_approval(approve or approval)
        elif earlier is not None and same and earlier.status.value != "failed":
            session = open_session(earlier.id, journal.workspace, objects=objects, stops=stops)
        else:
            bench = Bench(created, objects, given, None, journal.workspace)
            session = _begin(journal, created, newest, bench, stops, asked)
        if session.state.budget != budget:
            session.set_budget(budget)
    if compare:
        session.compare_when_done()
    return session.wait() if wait else session


def open_session(
    session_id: str,
    workspace: str | Path | None = None,
    resume: bool = True,
    *,
    objects: Mapping[Role, Any] | None = None,
    stops: Stops | None = None,
) -> Session:
    """A session of the journal by id, or the newest of that name; one that was cut off goes on if ``resume``.

    Raises:
        SessionError: there is none.
    """
    journal = open_journal(Path(workspace) if workspace is not None else find_workspace())
    with _LOCK:
        state = _load(journal, session_id) or _latest(journal, session_id)
        if state is None:
            names = sorted({known.rpartition("-")[0] for known in journal.sessions()})
            here = f"Name one of {', '.join(names[:12])}{' ...' if len(names) > 12 else ''}, or go" if names else "Go"
            raise SessionError(
                f"There is no session {session_id!r} in {journal.path}.",
                f"{here} to the folder that you designed it in.",
            )
        place = journal.path, state.id
        if place not in _LIVE:
            _LIVE[place] = Session(journal, state.id, _bench(state, objects, journal), stops, resume)
        return _LIVE[place]


def sessions(workspace: str | Path | None = None) -> list[str]:
    """Ids of the workspace's sessions, oldest first; an id is the name and a suffix."""
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
    journal.append(session_id, owner.owner, [created, *(Exchanged(turn="", exchange=found) for found in asked)])
    session = _LIVE[journal.path, session_id] = Session(journal, session_id, bench, stops)
    return session


def _latest(journal: Journal, name: str, key: str | None = None) -> State | None:
    """The newest session of that name; with ``key`` the newest that the same call began."""
    for session_id in reversed(journal.sessions()):
        if session_id.rpartition("-")[0] == name and (key is None or _key_of(journal, session_id) == key):
            return _load(journal, session_id)
    return None


def _key_of(journal: Journal, session_id: str) -> str:
    first = journal.first(session_id)
    return first.key if isinstance(first, Created) else ""


def _load(journal: Journal, session_id: str) -> State | None:
    return fold(session_id, (event for _, event in journal.read(session_id)))


def _key(created: Created) -> str:
    fields = created.model_dump(
        mode="json",
        exclude={"time", "key", "approval", "previous", "max_turns", "budget", "lift", "improve", "ablation", "tune"},
    )
    # what a call did not say leaves the key as it was before it could be said
    fields |= {name: value for name in ("lift", "improve", "ablation", "tune") if (value := getattr(created, name))}
    if created.roles.get(Role.ANALYST) == "rules":
        del fields["roles"][Role.ANALYST.value]
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()[:16]


def _version() -> str:
    try:
        return version("kernellab")
    except PackageNotFoundError:
        return ""


def _task_text(task: str | Path | Task, name: str | None) -> tuple[str, str, Task | None]:
    if not isinstance(task, (str, Path)):
        return task.text, name or task.name, task if name in (None, task.name) else None
    from kernellab.task import identifier, read_task

    text, found = read_task(task, name)
    return text, identifier(name or found), None


def _check_task(text: str) -> None:
    """What can be seen without running the text: that it parses and defines what a task needs."""
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        raise TaskError(
            f"The task has a syntax error at line {error.lineno}: {error.msg}.", "Mend that line."
        ) from None
    names = {name for node in tree.body for name in _bound(node)}
    if "*" in names or {"reference", "inputs"} <= names or {"Model", "get_inputs"} <= names:
        return
    if "reference" in names or "inputs" in names:
        missing = "inputs" if "reference" in names else "reference"
        raise TaskError(f"The task does not define {missing}(...).", "Define reference(...) and inputs(...) in it.")
    if "Model" in names:
        raise TaskError("The task defines Model but no get_inputs().", "Define get_inputs() beside the Model.")
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
    """Before a design begins: is there a Coder that writes ``dsl``? Rules write what there is a lowering to, models and
    persons what has documents. What is not given is taken from ``kernellab.toml``.

    Raises:
        SessionError, TargetError: an unknown role or DSL, or one that the rules Coder does not write.
    """
    from kernellab.lowering import DSLS

    usual = defaults(find_workspace())
    dsl = dsl if dsl is not None else usual.dsl
    specs, _ = parse_roles(roles if roles is not None else usual.roles)
    if dsl is not None and get_adapter(dsl).name not in DSLS and specs[Role.CODER] == "rules":
        raise SessionError(
            f"The rules Coder does not write {dsl}.",
            f"Choose --dsl {', '.join(DSLS[:-1])} or {DSLS[-1]}, or --roles coder=model; a kernel of yours is "
            "judged by kernellab verify.",
        )


def _check_options(options: Mapping[str, Any]) -> None:
    from kernellab.verifier.options import VerifyOptions

    try:
        VerifyOptions.model_validate(dict(options))
    except ValidationError as error:
        first = error.errors()[0]
        raise SessionError(
            f"The option {first['loc'][0]!r} cannot be {first['input']!r}.", f"{first['msg']}."
        ) from None


def _check_target(dsl: str | None) -> None:
    if dsl is None:
        return
    adapter = get_adapter(dsl)
    ready = adapter.readiness()
    if not ready.ready:
        raise TargetError(ready.reason, ready.remedy)
