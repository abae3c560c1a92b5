"""Begins searches, and finds those of a workspace.

A search begins in three steps: a request is planned (:func:`planned`, which writes nothing), the plan is written to the
workspace's journal as a run (:func:`recorded`), and the run works (:meth:`kernellab.evolve.run.Run.work`).
"""

from __future__ import annotations

import inspect
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kernellab.content import find_workspace, installed
from kernellab.designer.eager import as_asked
from kernellab.dsls import get_adapter
from kernellab.dsls.machine import detect_target
from kernellab.errors import EvolveError, JournalError
from kernellab.evolve.knobs import checked
from kernellab.evolve.records import Begun, Proposal, SearchRequest
from kernellab.evolve.run import Run
from kernellab.evolve.stream import Stream, names
from kernellab.options import build, signature_of
from kernellab.options.file import FILE, choose, read_table
from kernellab.options.memory import memory_defaults
from kernellab.options.search import Knobs
from kernellab.records import Author, Role
from kernellab.session.config import check_model
from kernellab.session.start import task_text
from kernellab.task import load_task
from kernellab.verifier.protocol.option_words import fidelity
from kernellab.verifier.remote import SSH, target_at

if TYPE_CHECKING:
    from kernellab.task import Task


def evolve(task: str | Path | Task, dsl: str = "cpp", *, wait: bool = False, **asked: Any) -> Run:
    """Search for faster kernels of ``task`` in the background (paper, Algorithm 3).

    The other arguments are the fields of :class:`kernellab.evolve.records.SearchRequest`: the knobs, the start, and the
    place of the search. Omitted ones come from ``kernellab.toml``, then from the defaults.

    Raises:
        TaskError, TargetError, EvolveError, SessionError: the call is invalid.
        KernellabError: ``precision`` is neither "strict" nor "framework".
    """
    run = begin(task, dsl, **asked).work()
    return run.wait() if wait else run


evolve.__signature__ = signature_of(  # type: ignore[attr-defined]
    SearchRequest, "str | Path | Task", Run, [inspect.Parameter("wait", inspect.Parameter.KEYWORD_ONLY, default=False)]
)


def begin(task: str | Path | Task, dsl: str = "cpp", **asked: Any) -> Run:
    """Like :func:`evolve`, but the caller starts the work with :meth:`Run.work`."""
    if unknown := sorted(set(asked) - set(SearchRequest.model_fields)):
        raise EvolveError(f"A search has no knob {unknown[0]!r}.", choose(unknown[0], SearchRequest.model_fields))
    values = {name: value for name, value in asked.items() if value is not None}
    return start(task, build(SearchRequest, {"dsl": dsl, **values}, EvolveError, "knob"))


def start(task: str | Path | Task, request: SearchRequest) -> Run:
    """Begin a run of a request; it waits for :meth:`Run.work`. Raises like :func:`evolve`."""
    return recorded(planned(task, request), request)


def recorded(begun: Begun, request: SearchRequest) -> Run:
    """Write the run planned by :func:`planned` to its journal and return it."""
    workspace = _workspace(request.workspace)
    run = f"{begun.name}-{uuid.uuid4().hex[:8]}"
    stream = Stream(workspace, run)
    stream.acquire()
    stream.append([begun])
    stream.release()
    stream.close()
    return Run(workspace, run, request.cluster)


def _workspace(path: str | Path | None) -> Path:
    return Path(path) if path is not None else find_workspace()


def planned(task: str | Path | Task, request: SearchRequest) -> Begun:
    """Return what :func:`start` would begin with; nothing is written. Raises like :func:`evolve`."""
    workspace = _workspace(request.workspace)
    text, name, _ = task_text(task, request.name)
    request = request.filled(read_table(workspace / FILE, "evolve", Knobs, EvolveError))
    knobs = checked(request.knobs)
    remote = target_at(request.cluster, request.dsl, request.chip) if request.cluster.startswith(SSH) else None
    readiness = get_adapter(request.dsl).readiness()
    if not (readiness.ready or remote):
        raise EvolveError(readiness.reason, readiness.remedy)
    for spec in filter(None, (request.model, *knobs.shares)):
        check_model(Role.DESIGNER, spec, workspace, knobs.budget)
    precision = fidelity(request.precision)
    task_to_solve = as_asked(load_task(text, name), precision, remote or detect_target(request.dsl, request.chip))
    return Begun(
        name=name, text=text, dsl=request.dsl, chip=request.chip, target=remote, knobs=knobs, model=request.model,
        allow_library=request.allow_library, precision=precision, rounded=tuple(sorted(task_to_solve.rounded)),
        given=_initial(request), version=installed(),
        memory=request.memory if request.memory is not None else memory_defaults(workspace).use,
    )  # fmt: skip


def _initial(request: SearchRequest) -> tuple[Proposal, ...]:
    """A request's sketches and kernels as proposals: a person's, or of a session whose role ``author`` wrote them."""
    of_person = Proposal(number=0, round=0, island=0, operator="person", author=Author.HUMAN)
    author = {} if request.author is Author.HUMAN else {"operator": "session", "author": request.author}
    return (
        *(of_person.model_copy(update={"sketch": sketch, **author}) for sketch in request.sketches),
        *(of_person.model_copy(update={"source": source}) for source in request.sources),
    )


def open_run(run: str, workspace: str | Path | None = None, cluster: str = "") -> Run:
    """Open a run by its id, or the newest of that task's name. Raises EvolveError if there is none."""
    run_ids = runs(workspace)
    run_id = _newest(run, run_ids)
    if run_id is None:
        remedy = f"There is {', '.join(run_ids[-8:])}." if run_ids else "Begin one with `kernellab evolve TASK`."
        raise EvolveError(f"There is no run {run!r} in this workspace.", remedy)
    return Run(_workspace(workspace), run_id, cluster)


def is_run(name: str, workspace: str | Path | None = None) -> bool:
    """Whether it is a run's id, or the name of a task that was searched."""
    return _newest(name, runs(workspace)) is not None


def _newest(name: str, run_ids: Sequence[str]) -> str | None:
    """The run of that id, else the newest of the task of that name; None if there is neither."""
    of_task = (run_id for run_id in reversed(run_ids) if run_id.rpartition("-")[0] == name)
    return name if name in run_ids else next(of_task, None)


def runs(workspace: str | Path | None = None) -> list[str]:
    """The ids of the workspace's runs, oldest first."""
    return names(_workspace(workspace))


class Readable(NamedTuple):
    """Runs, oldest first, and the errors of those that cannot be read, by id."""

    runs: list[Run]
    faults: dict[str, str]


def readable(last: int = 0, workspace: str | Path | None = None) -> Readable:
    """The workspace's runs: the ``last`` ones, or all."""
    result = Readable([], {})
    for name in runs(workspace)[-last:]:
        try:
            result.runs.append(open_run(name, workspace))
        except JournalError as error:
            result.faults[name] = str(error)
    return result
