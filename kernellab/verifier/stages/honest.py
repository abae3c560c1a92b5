"""The stage honest: whether the candidate's own code does the work."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import isfinite
from typing import TYPE_CHECKING, Any, NamedTuple

from kernellab.conditions import (
    LaunchesWhenTraced,
    LibraryShare,
    Mark,
    OwnShareUnseen,
    StaticFinding,
    WeakTask,
    launches_when_traced,
    of,
)
from kernellab.dsls.documented import DocumentedAdapter
from kernellab.dsls.spec import SPEC
from kernellab.records import Evidence
from kernellab.target import Backend
from kernellab.task.sample.inputs import Family
from kernellab.verifier.attribution.share import LookCounts, leading_names, sample_calls
from kernellab.verifier.audit.audit import audit
from kernellab.verifier.cases import cases
from kernellab.verifier.cuda.trace import is_library, is_move
from kernellab.verifier.judge.process import WorkerFailure
from kernellab.verifier.protocol.memory import lay_out
from kernellab.verifier.protocol.rules import HONEST
from kernellab.verifier.stages.ablation import ghost_test
from kernellab.verifier.stages.candidate import TracedCall
from kernellab.verifier.stages.precision import precision_class
from kernellab.verifier.stages.refused import Refused

if TYPE_CHECKING:
    from kernellab.dsls.base import Adapter
    from kernellab.task import Task
    from kernellab.verifier.cases.cases import Case
    from kernellab.verifier.stages.candidate import Stages


def honest(stages: Stages) -> str:
    """Run the ghost test, share of own code and precision class; return their notes."""
    _mark_weak_task(stages)
    words = [ghost_test(stages), own_share(stages)]
    launches_unwatched(stages)
    label = precision_class(stages)
    return ", ".join(w for w in (*words, label) if w)


def launches_unwatched(stages: Stages) -> None:
    """Refuse if own kernels run only under the dispatch mode that measures their share, which code can detect.

    Calls with and without the mode alternate on one case: a graph that replays recorded launches launches in neither.
    """
    if stages.traced is None or not stages.traced.launches:
        return
    case, names = stages.traced
    layout, seconds = lay_out(case.args), stages.call_deadline(case)
    try:
        with _launches(stages) as unwatched:
            stages.call(case, poison=False)
        if unwatched:
            return
        with _launches(stages) as watched:
            stages.worker.trace(layout, 0, stages.context.left(3 * seconds))
    except WorkerFailure as failure:
        raise stages.failed("honest", failure, case) from failure
    if not watched:
        return
    if not stages.context.options.allow_library:
        raise stages.refused(case, "ghost", launches_when_traced(names[:4]))
    stages.context.findings.add(LaunchesWhenTraced(kernels=tuple(names[:4])))


@contextmanager
def _launches(stages: Stages) -> Iterator[list[str]]:
    """Yield a list that receives the names of the launches on exit."""
    names: list[str] = []
    stages.worker.ghost([], stages.context.left(HONEST.ghost_seconds))
    yield names
    names += stages.worker.ghost(None, stages.context.left(HONEST.ghost_seconds))


def _mark_weak_task(stages: Stages) -> None:
    """Record that a task's own inputs let degenerate kernels pass, which excludes it from headline figures."""
    report = audit(stages.task)
    if not report.discriminating:
        stages.context.findings.add(
            Mark(kind="task-not-discriminating"), *(WeakTask(rule=rule, reason=why) for rule, why in report.flags)
        )


def own_share(stages: Stages) -> str:
    """Return, in words, the share of a call's time outside the framework's compute operators; refuse if it is too
    small."""
    if stages.context.interpreted:
        static = of(stages.context.findings.conditions, StaticFinding)
        if stages.context.options.allow_library and any(finding.rule == "library" for finding in static):
            stages.context.findings.add(LibraryShare())
            stages.context.findings.composed = "It composes with the library, whose work is not its own."
        return "share of own kernels not measured in the interpreter"
    case = cases.case(stages.task, stages.task.module().default_sizes(), Family.OWN)
    trace = _traced(stages, case)
    share, library = trace.share, trace.library
    if stages.replays and not any(_own(name, stages.replays) for name in trace.kernels):
        # A launch seen only once may never be repeated.
        share = 0.0
    counts = _counted(stages, case)
    refuse_strangers(stages, case, counts, "")
    if counts.is_mostly_library and counts.share < share:
        share, library = counts.share, leading_names(counts.libraries)
    stages.context.findings.own_share = share
    names = ", ".join(library[:4])
    if share < HONEST.own_share and not stages.context.options.allow_library:
        raise stages.refused(case, "library", _library_message(stages, share, library, counts))
    if library and stages.context.options.allow_library:
        # The library's work never counts as the kernel's own, however small it is.
        stages.context.findings.add(LibraryShare(share=1 - share))
        composed = f"It composes with the library: {1 - share:.0%} of its time is {names}, not its own."
        stages.context.findings.composed = composed
    elif share < HONEST.own_share:
        stages.context.findings.add(LibraryShare())
    how = f"{counts.total} program counters" if counts.is_conclusive else "as reported by its own process"
    return f"{share:.0%} of the time in own code ({how})" + (f", the rest in {names}" if library else "")


def _library_message(stages: Stages, share: float, library: Sequence[str], counts: LookCounts) -> str:
    """Return where the time is that is not in the candidate's own code, and a way out where a DSL's spec may cause
    it."""
    names = ", ".join(library[:4])
    work = f"the framework's own {names}" if library else "no kernel of its own"
    if counts.is_mostly_library:
        work = f"{names}, not its own code, by {counts.total} samples of its program counters"
    message = f"{1 - share:.0%} of the time is in {work}"
    package = undeclared(stages.context.adapter, library)
    if not package:
        return message
    return (
        f"{message}; where {package} compiles this source's kernels in memory, the DSL's {SPEC} says so: "
        f'worker.runtime = ["{package}"]'
    )


def undeclared(adapter: Adapter, names: Sequence[str]) -> str:
    """Return the package that one of the library files ``names`` belongs to, for a DSL that only documents describe and
    whose spec names no runtime; else an empty string."""
    packages = (mark for mark in adapter.marks if any(name.startswith(mark) for name in names))
    return next(packages, "") if isinstance(adapter, DocumentedAdapter) and not adapter.runtime else ""


def refuse_strangers(stages: Stages, case: Case, counts: LookCounts, where: str) -> None:
    """Refuse work in code of unknown origin, whatever else is allowed."""
    if counts.unknown_share:
        names = ", ".join(leading_names(counts.unknown_objects))
        share = f"{counts.unknown_share:.0%} of {counts.total} samples{where}"
        what = f"{share} are in code that is neither the candidate's nor known ({names})"
        raise stages.refused(case, "unknown-code", what)


class Trace(NamedTuple):
    """What the worker's process reports of one call: the ``share`` of its time outside the framework's compute
    operators, the names of those operators, and of all ``kernels`` that ran on the device."""

    share: float
    library: list[str]
    kernels: list[str]


def _traced(stages: Stages, case: Case) -> Trace:
    """Return the trace of a call. Raises Refused if the call fails or the report is malformed."""
    layout = lay_out(case.args)
    stages.worker.write(0, layout, case.args)
    try:
        with _launches(stages) as launched:
            answer = stages.worker.trace(layout, 0, stages.context.left(3 * stages.call_deadline(case)))
        stages.traced = TracedCall(case, launched)
        total, library = float(answer["total"]), _seconds_by_name(answer["library"])
        if only_moves(stages.task):
            moves = _seconds_by_name(answer.get("moves") or {})
            library |= moves
            # A device's total does not include moves.
            total += sum(moves.values()) if stages.context.request.backend is Backend.CUDA else 0.0
        kernels = list(map(str, answer.get("kernels") or ()))
        if not all(isfinite(s) and s >= 0 for s in (total, *library.values())):
            raise ValueError("impossible times")
    except WorkerFailure as failure:
        raise stages.failed("honest", failure, case) from failure
    except (KeyError, TypeError, ValueError):
        raise Refused("The worker's answer to the trace is malformed.", Evidence(signature="protocol")) from None
    share = max(0.0, 1.0 - sum(library.values()) / total) if total > 0 else 1.0
    return Trace(share, list(library), kernels)


def _seconds_by_name(reported: Any) -> dict[str, float]:
    """Return a worker's mapping of names to seconds. Raises TypeError or ValueError if it is none."""
    return {str(name): float(seconds) for name, seconds in dict(reported).items()}


def only_moves(task: Task) -> bool:
    """Return whether the reference computes nothing. Then a copy by the framework is the task's work."""
    cost = audit(task).cost
    return not cost.problem and not cost.total_flops and not cost.other_flops


def _counted(stages: Stages, case: Case) -> LookCounts:
    """Return the own and the library's share from sampled program counters; on a device these do not cover the
    work."""
    if stages.context.request.backend is not Backend.CPU:
        return LookCounts(unseen="the work is done on a device")
    try:
        counts = sample_calls(stages, case, only_moves(stages.task))
    except WorkerFailure as failure:
        raise stages.failed("honest", failure, case) from failure
    if counts.unseen:
        stages.context.findings.add(OwnShareUnseen(reason=counts.unseen))
    stages.context.findings.hot = counts.hot
    return counts


def _own(kernel: str, launched: list[str]) -> bool:
    """Return whether a kernel that ran on the device, by its name, is neither a library's nor only fills or moves
    data."""
    return kernel in launched or not (is_library(kernel) or is_move(kernel))
