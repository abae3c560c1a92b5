"""One problem of a suite in this process: reduce it, design it, and make its row."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from kernellab.bench.rows import Gave, Row
from kernellab.bench.scale import INTERPRETED_BYTES, Scaled, scaled
from kernellab.conditions import WeakTask, of
from kernellab.errors import KernellabError, SessionError
from kernellab.options.design import DesignCall
from kernellab.options.fidelity import STRICT
from kernellab.options.suite import DEADLINE
from kernellab.records import Record, Verdict
from kernellab.task import Task, forget_modules, load_task

if TYPE_CHECKING:
    from kernellab.session import Session
    from kernellab.target import Target


#: lines that a worker sends: while it waits for device memory, when the problem begins, and in place of a row where the
#: problem is postponed
WAITING, BEGUN, POSTPONED = b"waits", b"begins", b"later"
#: the category of a task without a family
OTHER = "other"
#: the baselines of each kernel
BASELINES = ("eager", "compile")
#: memory of judge, candidate and baselines together, as a multiple of the task's tensors: 19 was observed
_COPIES = 20
#: bytes of a device of unknown size
_MEMORY = 80 << 30
#: largest bytes of a task's tensors for which a judge keeps its memory for the next problem, and the share of a
#: device's memory that is allotted, so that the rest is enough for that; chosen, not measured, as the next two
_SMALL, _ALLOTTED = 128 << 20, 0.85
#: share of a device's memory from which a problem is postponed until smaller ones are done: a worker that waits for so
#: much memory would be idle
_LARGE_SHARE = 0.25
#: seconds before its deadline at which a session is stopped, so that the current turn can end
_STOP_BEFORE = 60.0


class Job(Record):
    """A worker's job: the task, and how to design it.

    ``max_bytes`` 0 means no limit by the caller; on a CPU ``cpu_bytes`` then applies. ``deadline`` is in seconds. A
    ``late`` job waits for as much of a device as it needs. A ``dry`` job is only designed and gated."""

    name: str
    category: str
    text: str
    dynamic: bool
    workspace: str
    title: str = ""
    note: str = ""
    dsl: str | None = None
    roles: str | None = None
    max_turns: int = 20
    max_bytes: int = 0
    cpu_bytes: int = 0
    allow_library: bool = False
    tune: str = ""
    deadline: float = DEADLINE
    late: bool = False
    #: the memory's path; "" for none. Kernels of the task's own computation are always left out
    memory: str = ""
    dry: bool = False
    #: "strict" or "framework"
    precision: str = STRICT


class Later(Exception):
    """The problem needs much of the device and is postponed until smaller ones are done."""


def run_job(job: Job, waits: Callable[[], None] = lambda: None, begins: Callable[[], None] = lambda: None) -> Row:
    """Return the row of one session. A failure of the problem is the row's reason.

    ``waits`` is called before a wait for device memory, ``begins`` after it: the wait does not count as the job's time.

    Raises:
        Later: the job needs much of the device and is not ``late``.
    """
    from kernellab.session import design

    if job.dry:
        return _dry(job, begins)
    began = time.perf_counter()
    _warm(job)
    outcome = _Outcome(job.category, (job.note,) if job.note else ())
    try:
        reduced = _within_limit(job)
        outcome.cut = reduced.words
        task = load_task(reduced.text, job.name)
        outcome.notes += task.notes
        outcome.category = outcome.category or category(task)
        with _device_memory(job, task, waits) as waited:
            began += waited
            begins()
            session = design(task, workspace=Path(job.workspace), **options_of(job))
            in_time = _ended_in_time(session, began + job.deadline - min(_STOP_BEFORE, job.deadline / 2))
        outcome.learn(session)
        if not in_time and session.state.best() is None:
            outcome.reason = f"It took longer than its deadline of {job.deadline:g} s."
    except KernellabError as error:
        outcome.reason = str(error)
    return outcome.row(job, time.perf_counter() - began)


class _Cost(TypedDict):
    """Fields of the row about requests to models."""

    requests: int
    tokens: int
    usd: float | None


@dataclass
class _Outcome:
    """The parts of a problem's row, as far as they are known: the row of a problem that fails has those before that."""

    category: str
    notes: tuple[str, ...]
    #: how the task was reduced, in words
    cut: str = ""
    turns: int = 0
    verdict: Verdict | None = None
    reason: str = ""
    remembered: tuple[Gave, ...] = ()
    cost: _Cost = field(default_factory=lambda: _Cost(requests=0, tokens=0, usd=None))

    def learn(self, session: Session) -> None:
        """Take turns, entries of the memory, cost and the best verdict (else the last one) from an ended session."""
        self.turns, self.reason = len(session.turns), session.reason
        entries = (entry for turn in session.turns for entry in turn.remembered)
        self.remembered = tuple(Gave(name=entry.name, score=entry.score, taken=entry.taken) for entry in entries)
        total = session.trace.ledger()["total"]
        tokens = total["input_tokens"] + total["output_tokens"]
        self.cost = _Cost(requests=total["requests"], tokens=tokens, usd=total["usd"])
        best = session.state.best()
        last = next((turn.verdict for turn in reversed(session.turns) if turn.verdict), None)
        self.verdict = best.verdict if best else last

    def row(self, job: Job, seconds: float) -> Row:
        """Return the row of the job, which took ``seconds`` without waits."""
        row = Row.of(job.name, self.category, job.dynamic, self.verdict, self.turns, seconds, self.reason)
        proves = not (self.verdict and of(self.verdict.conditions, WeakTask))
        update = {
            "remembered": self.remembered, "cut": self.cut, "note": "; ".join(self.notes), "discriminating": proves,
            **self.cost,
        }  # fmt: skip
        return with_suite_labels(row, job).model_copy(update=update)


def _dry(job: Job, begins: Callable[[], None]) -> Row:
    from kernellab.bench.dry import dry_row
    from kernellab.designer.eager import as_asked

    begins()
    target = _target(job)
    try:
        reduced = _within_limit(job)
        task = as_asked(load_task(reduced.text, job.name), job.precision, target)
    except KernellabError as error:
        row = Row.of(job.name, job.category, job.dynamic, None, 0, 0.0, str(error))
        return with_suite_labels(row.model_copy(update={"stage": "read"}), job)
    row = dry_row(job.name, job.category, job.dynamic, task, target)
    notes = [note for note in (job.note, *task.notes, row.note) if note]
    return with_suite_labels(row.model_copy(update={"cut": reduced.words, "note": "; ".join(notes)}), job)


def options_of(job: Job) -> dict[str, Any]:
    """Return every option of the session, so that figures do not depend on the user's ``[session]`` settings."""
    defaults = DesignCall()
    return {name: getattr(defaults, name) for name in DesignCall.model_fields} | {
        "dsl": job.dsl,
        "roles": job.roles,
        "approve": "none",
        "max_turns": job.max_turns,
        "tune": job.tune,
        "memory": job.memory or "off",
        "hold_out": True,
        "fresh": True,
        "options": {
            "baselines": list(BASELINES),
            "allow_library": job.allow_library,
            "precision": job.precision,
        },
    }


def _ended_in_time(session: Session, until: float) -> bool:
    """Wait for the session's end and return True; stop it at ``until`` (s, perf_counter) and return False: its results
    until then count. The caller must abort a turn that does not end."""
    try:
        session.wait(max(until - time.perf_counter(), 0.0))
        return True
    except SessionError:
        session.stop()
        session.wait()
        return False


def _target(job: Job) -> Target:
    """Return the target of the job's kernels on this machine. Raises TargetError."""
    from kernellab.dsls.machine import detect_target

    return detect_target(job.dsl)


def _warm(job: Job) -> None:
    """Start the judge while the task is read and reduced, and while the job waits for memory."""
    from kernellab.session.engine.engine import engine
    from kernellab.verifier.protocol.options import VerifyOptions

    def start() -> None:
        # the verification reports why a judge cannot start
        with suppress(KernellabError):
            engine().verifier().warm(_target(job), VerifyOptions.model_validate({"baselines": BASELINES}))

    threading.Thread(target=start, name="kernellab-warm", daemon=True).start()


@contextmanager
def _device_memory(job: Job, task: Task, waits: Callable[[], None]) -> Iterator[float]:
    """Reserve memory of a CUDA device until the problem is done; yields the seconds of the wait.

    Raises:
        Later: it needs much of the device, and the job is not ``late``.
    """
    from kernellab.session.engine.engine import engine
    from kernellab.target import Backend
    from kernellab.task.sample.sizes import input_bytes
    from kernellab.verifier.judge import turns

    target = _target(job)
    if target.backend is not Backend.CUDA:
        yield 0.0
        return
    size = input_bytes(task)
    share = _COPIES * size / (_ALLOTTED * (target.chip.memory_bytes or _MEMORY))
    if share > _LARGE_SHARE and not job.late and turns.environment():
        raise Later
    waits()
    with turns.share(share) as waited:
        try:
            yield waited
        finally:
            # a warm judge and its workers keep their allocations
            if size > _SMALL:
                engine().verifier().release()
                forget_modules()


def with_suite_labels(row: Row, job: Job) -> Row:
    """Return ``row`` with the problem's name in the suite."""
    labels = {"title": job.title or job.name, "suite": job.category, "precision": job.precision}
    return row.model_copy(update=labels)


def _within_limit(job: Job) -> Scaled:
    """Return the job's task, reduced to the bytes that the job or the target allows. Raises TaskError, TargetError."""
    from kernellab.target import Backend

    backend = _target(job).backend
    limit = job.max_bytes
    if backend is Backend.INTERPRETER:
        limit = min(limit or INTERPRETED_BYTES, INTERPRETED_BYTES)
    elif backend is Backend.CPU:
        limit = limit or job.cpu_bytes
    return scaled(load_task(job.text, job.name), limit) if limit else Scaled(job.text)


def category(task: Task) -> str:
    """Return the task's family from its captured graph, never from its name; ``other`` without one."""
    from kernellab.capture import capture
    from kernellab.capture.family import family_of

    try:
        return family_of(capture(task)).value or OTHER
    except KernellabError:
        return OTHER
