"""One answer for each kernel of a repository: right and fast enough, or why not; and what could not be checked here."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timezone
from enum import Enum
from importlib.metadata import version

from kernellab.ci.lock import Figure, Lock, machine_class
from kernellab.ci.subjects import Subject, Unread
from kernellab.dsls.machine import detect_target
from kernellab.errors import KernellabError, TargetError, TaskError
from kernellab.records import Comparison, Record, StageResult, Verdict
from kernellab.task import load_task
from kernellab.task.audit import admit
from kernellab.verifier import Verifier, VerifyOptions


class State(str, Enum):
    """What became of a kernel. All but the first and the last fail a build."""

    PASSED = "passed"
    WRONG = "wrong"
    #: certainly below the least speedup that was asked for
    SLOW = "slow"
    #: certainly slower than the locked figure
    SLOWER = "slower"
    #: its file is damaged, or its task cannot be used
    BROKEN = "broken"
    UNCHECKED = "not checked"

    @property
    def fails(self) -> bool:
        return self not in (State.PASSED, State.UNCHECKED)


class Result(Record):
    """``not_checked`` says what this machine could not check of a kernel that is right; ``locked`` is the lock's figure
    of this class of machine."""

    name: str
    kind: str
    state: State
    reason: str = ""
    not_checked: str = ""
    figure: Figure | None = None
    locked: Figure | None = None
    history: tuple[Figure, ...] = ()
    machine: str = ""
    trust: str = ""
    seconds: float = 0.0
    #: times that it was measured; a kernel that looks slow is measured again before it fails
    measured: int = 0

    @property
    def speed(self) -> str:
        """The figure, with "keep eager" or "not recommended" where it should not replace eager; "" without one."""
        return ", ".join(filter(None, (self.figure.text, self.figure.standing.short_advice))) if self.figure else ""

    @property
    def line(self) -> str:
        """One line: the name, the state and the reason or the figure."""
        said = self.reason or self.speed or "right"
        return f"{self.name}: {self.state.value}: {said}{f' ({self.not_checked})' if self.not_checked else ''}"


def check(
    found: Iterable[Subject | Unread], options: VerifyOptions, *, least: float | None = None, lock: Lock | None = None,
    accept: bool = False,
    progress: Callable[[Result], None] = lambda result: None,
    stages: Callable[[StageResult], None] = lambda part: None,
) -> Iterator[Result]:  # fmt: skip
    """The results, one for each of ``found``, as they come.

    Args:
        least: the speedup over eager below which a kernel fails, where its whole interval lies below.
        lock: accepted figures; a kernel fails where its whole interval lies below that of this class of machine.
        accept: a figure below the locked one is no failure, since it is about to be recorded.
    """
    with Verifier() as verifier:
        for each in found:
            if isinstance(each, Unread):
                state = State.BROKEN if each.broken else State.UNCHECKED
                result = Result(name=each.name, kind="file", state=state, reason=each.reason)
            else:
                result = verify_subject(verifier, each, options, least, lock or Lock(), accept, stages)
            progress(result)
            yield result


def verify_subject(
    verifier: Verifier, subject: Subject, options: VerifyOptions, least: float | None, lock: Lock,
    accept: bool = False,
    stages: Callable[[StageResult], None] = lambda part: None,
) -> Result:  # fmt: skip
    """Verifies one kernel; where it seems too slow, once more, and both intervals count."""
    began = time.perf_counter()
    start = Result(name=subject.name, kind=subject.kind, state=State.UNCHECKED)

    def result(begun: Result = start, **changes: object) -> Result:
        return begun.model_copy(update={**changes, "seconds": time.perf_counter() - began})

    def wrong(verdict: Verdict) -> Result:
        return result(_begun(subject, verdict, lock), state=State.WRONG, reason=verdict.reason)

    try:
        task = load_task(subject.task, subject.task_name)
        admit(task)
        target = detect_target(subject.source.dsl)
    except TargetError as error:
        return result(reason=error.message)
    except KernellabError as error:
        return result(state=State.BROKEN, reason=error.message)
    try:
        verdict = verifier.verify(task, subject.source, target, options=options, progress=stages)
        if not verdict.passed:
            return wrong(verdict)
        judged = _judged(subject, verdict, least, lock, accept)
        if judged.state.fails:
            # a busy machine makes one measurement slow, seldom two
            again = verifier.verify(task, subject.source, target, options=options, progress=stages)
            if not again.passed:
                return wrong(again)
            judged = _judged(subject, again, least, lock, accept, judged.figure)
    except TaskError as error:
        return result(state=State.BROKEN, reason=error.message)
    except KernellabError as error:
        return result(state=State.UNCHECKED, reason=error.message)
    return judged.model_copy(update={"seconds": time.perf_counter() - began})


def _begun(subject: Subject, verdict: Verdict, lock: Lock) -> Result:
    """The kernel with what the lock has of it for the verdict's class of machine, whatever the verdict says."""
    machine = machine_class(verdict.environment)
    history = lock.history(machine, subject.name)
    return Result(
        name=subject.name, kind=subject.kind, state=State.UNCHECKED, machine=machine, history=history,
        locked=history[-1] if history else None, trust=verdict.trust.value,
    )  # fmt: skip


def _judged(
    subject: Subject, verdict: Verdict, least: float | None, lock: Lock, accept: bool, before: Figure | None = None
) -> Result:
    measured = 1 if before is None else 2
    right = _begun(subject, verdict, lock).model_copy(update={"state": State.PASSED, "measured": measured})
    eager = verdict.against("eager")
    if eager is None or verdict.time is None:
        return right.model_copy(update={"not_checked": "its speed is not measured here"})
    figure = _figure(subject, eager, verdict.time.median_ms, before)
    right = right.model_copy(update={"figure": figure})
    if least is not None and figure.high < least:
        reason = f"{figure.text} of eager, below {least:g}x"
        return right.model_copy(update={"state": State.SLOW, "reason": reason})
    if right.locked is not None and not accept and figure.high < right.locked.low:
        reason = f"{figure.text} of eager, and {right.locked.text} is locked of {right.locked.at[:10]}"
        return right.model_copy(update={"state": State.SLOWER, "reason": reason})
    return right


def _figure(subject: Subject, eager: Comparison, time_ms: float, before: Figure | None) -> Figure:
    low, high = eager.low, eager.high
    if before is not None:
        low, high = min(low, before.low), max(high, before.high)
    return Figure(
        at=datetime.now(timezone.utc).isoformat(timespec="seconds"), speedup=eager.speedup, low=low, high=high,
        time_ms=time_ms, source=subject.source.hash, kernellab=version("kernellab"),
    )  # fmt: skip


def failed_lines(results: Iterable[Result]) -> list[str]:
    """One line for each kernel that fails the build."""
    return [r.line for r in results if r.state.fails]
