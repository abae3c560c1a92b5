"""One problem of a suite in this process: cut it, design it, and the row that comes of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernellab.bench.rows import Gave, Row
from kernellab.bench.scale import INTERPRETED_BYTES, Scaled, scaled
from kernellab.conditions import WeakTask, of
from kernellab.errors import KernellabError, SessionError
from kernellab.options.design import DesignCall
from kernellab.options.fidelity import STRICT
from kernellab.records import Record
from kernellab.task import Task, forget_modules, load_task

if TYPE_CHECKING:
    from kernellab.session import Session


#: what a worker says on its way to a row, or instead of one
WAITS, BEGINS, LATER = b"waits", b"begins", b"later"
#: the category of a task without a family
OTHER = "other"
#: what each kernel is timed against
BASELINES = ("eager", "compile")
#: what judge, candidate and baselines hold together, in sizes of the task's tensors: 19 were seen
_COPIES = 20
#: bytes of a device that does not tell
_MEMORY = 80 << 30
#: bytes of a task's tensors up to which a judge keeps what it holds for the next problem, and the part of a device's
#: memory that is shared out, so that the rest is enough for that
_SMALL, _SHARED = 128 << 20, 0.85
#: the part of a device's memory from which on a problem is put off until those that need less are done: while it waits
#: for that much to be free, a worker would do nothing
_MUCH = 0.25
#: seconds for one problem, a session with all its verifications
DEADLINE = 900.0
#: seconds before its deadline at which a session is stopped, so that the turn that runs can end
_LAST = 60.0


class Job(Record):
    """What a worker is asked to do: the task, and how to design it.

    ``max_bytes`` 0 means no limit of the caller's; on a CPU ``cpu_bytes`` then holds. ``deadline`` is in seconds. A
    ``late`` one waits for as much of a device as it needs. A ``dry`` one is designed and gated, and no more.
    """

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
    #: a store's place; "" asks no memory. Kernels of the task's own computation are always held out
    memory: str = ""
    dry: bool = False
    #: "strict" or "framework"
    precision: str = STRICT


class Later(Exception):
    """The problem needs much of the device: it is to be done when those that need less are."""


def run_job(job: Job, waits: Callable[[], None] = lambda: None, begins: Callable[[], None] = lambda: None) -> Row:
    """The row of one session. What goes wrong with the problem is the row's reason.

    ``waits`` is called before it waits for memory of the device, ``begins`` when it has it: neither counts as its time.

    Raises:
        Later: it needs much of the device and is not ``late``.
    """
    from kernellab.session import design

    if job.dry:
        return _dry(job, begins)
    began = time.perf_counter()
    _warm(job)
    verdict, turns, reason, cut, kind, proves = None, 0, "", "", job.category, True
    notes: tuple[str, ...] = (job.note,) if job.note else ()
    gave: tuple[Gave, ...] = ()
    cost: dict[str, Any] = {}
    try:
        small = _at_most(job)
        cut = small.words
        task = load_task(small.text, job.name)
        notes += task.notes
        kind = kind or category(task)
        with _room(job, task, waits) as waited:
            began += waited
            begins()
            session = design(task, workspace=Path(job.workspace), **options_of(job))
            in_time = _ended(session, began + job.deadline - min(_LAST, job.deadline / 2))
        turns, reason = len(session.turns), session.reason
        gave = tuple(Gave(name=r.name, score=r.score, taken=r.taken) for turn in session.turns for r in turn.remembered)
        total = session.trace.ledger()["total"]
        spent = total["input_tokens"] + total["output_tokens"]
        cost = {"requests": total["requests"], "tokens": spent, "usd": total["usd"]}
        best = session.state.best()
        verdict = best.verdict if best else next((t.verdict for t in reversed(session.turns) if t.verdict), None)
        if not in_time and best is None:
            reason = f"It took longer than its deadline of {job.deadline:g} s."
        proves = not (verdict and of(verdict.conditions, WeakTask))
    except KernellabError as error:
        reason = str(error)
    row = Row.of(job.name, kind, job.dynamic, verdict, turns, time.perf_counter() - began, reason)
    return named(row, job).model_copy(
        update={"remembered": gave, "cut": cut, "note": "; ".join(notes), "discriminating": proves, **cost}
    )


def _dry(job: Job, begins: Callable[[], None]) -> Row:
    from kernellab.bench.dry import dry_row
    from kernellab.designer.eager import as_asked
    from kernellab.dsls.machine import detect_target

    begins()
    target = detect_target(job.dsl)
    try:
        small = _at_most(job)
        task = as_asked(load_task(small.text, job.name), job.precision, target)
    except KernellabError as error:
        row = Row.of(job.name, job.category, job.dynamic, None, 0, 0.0, str(error))
        return named(row.model_copy(update={"stage": "read"}), job)
    row = dry_row(job.name, job.category, job.dynamic, task, target)
    notes = [note for note in (job.note, *task.notes, row.note) if note]
    return named(row.model_copy(update={"cut": small.words, "note": "; ".join(notes)}), job)


def options_of(job: Job) -> dict[str, Any]:
    """Every option of the session, so that a figure does not depend on ``[session]`` of who measures it."""
    usual = DesignCall()
    return {name: getattr(usual, name) for name in DesignCall.model_fields} | {
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


def _ended(session: Session, until: float) -> bool:
    """Waits for the session's end; one that is not there by ``until`` (s, perf_counter) is stopped: what it has by
    then counts. A turn that never ends is the caller's to break off."""
    try:
        session.wait(max(until - time.perf_counter(), 0.0))
        return True
    except SessionError:
        session.stop()
        session.wait()
        return False


def _warm(job: Job) -> None:
    """Starts the judge in parallel with what comes first: reading the task, cutting it, waiting for room."""
    from kernellab.dsls.machine import detect_target
    from kernellab.session.engine.engine import engine
    from kernellab.verifier.protocol.options import VerifyOptions

    def start() -> None:
        # the verification itself says what keeps a judge from starting
        with suppress(KernellabError):
            engine().verifier().warm(detect_target(job.dsl), VerifyOptions.model_validate({"baselines": BASELINES}))

    threading.Thread(target=start, name="kernellab-warm", daemon=True).start()


@contextmanager
def _room(job: Job, task: Task, waits: Callable[[], None]) -> Iterator[float]:
    """On a CUDA device: its memory is shared out, and given back when the problem is done; the seconds waited for it.

    Raises Later.
    """
    from kernellab.dsls.machine import detect_target
    from kernellab.session.engine.engine import engine
    from kernellab.target import Backend
    from kernellab.task.sample.sizes import input_bytes
    from kernellab.verifier.judge import turns

    target = detect_target(job.dsl)
    if target.backend is not Backend.CUDA:
        yield 0.0
        return
    size = input_bytes(task)
    part = _COPIES * size / (_SHARED * (target.chip.memory_bytes or _MEMORY))
    if part > _MUCH and not job.late and turns.environment():
        raise Later
    waits()
    with turns.share(part) as waited:
        try:
            yield waited
        finally:
            # a warm judge and its workers keep what they have allocated
            if size > _SMALL:
                engine().verifier().release()
                forget_modules()


def named(row: Row, job: Job) -> Row:
    """``row`` with what the suite calls the problem."""
    labels = {"title": job.title or job.name, "suite": job.category, "precision": job.precision}
    return row.model_copy(update=labels)


def _at_most(job: Job) -> Scaled:
    """Raises TaskError, TargetError."""
    from kernellab.dsls.machine import detect_target
    from kernellab.target import Backend

    backend = detect_target(job.dsl).backend
    limit = job.max_bytes
    if backend is Backend.INTERPRETER:
        limit = min(limit or INTERPRETED_BYTES, INTERPRETED_BYTES)
    elif backend is Backend.CPU:
        limit = limit or job.cpu_bytes
    return scaled(load_task(job.text, job.name), limit) if limit else Scaled(job.text)


def category(task: Task) -> str:
    """The task's family by its captured graph alone, never by its name; ``other`` where there is none."""
    from kernellab.capture import capture
    from kernellab.capture.family import family_of

    try:
        return family_of(capture(task)).value or OTHER
    except KernellabError:
        return OTHER
