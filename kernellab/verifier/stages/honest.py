"""The stage honest: is the work done by the candidate's own code?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import isfinite
from typing import TYPE_CHECKING

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
from kernellab.verifier.attribution.share import Counted, counted, most
from kernellab.verifier.audit.audit import audit
from kernellab.verifier.cases import cases
from kernellab.verifier.cuda.trace import is_library, is_move
from kernellab.verifier.judge.process import WorkerFailure
from kernellab.verifier.protocol.memory import lay_out
from kernellab.verifier.protocol.rules import HONEST
from kernellab.verifier.stages.ablation import ghost_test
from kernellab.verifier.stages.precision import precision_class
from kernellab.verifier.stages.refused import Refused

if TYPE_CHECKING:
    from kernellab.dsls.base import Adapter
    from kernellab.task import Task
    from kernellab.verifier.cases.cases import Case
    from kernellab.verifier.stages.candidate import Stages


def honest(stages: Stages) -> str:
    """Ghost test, share of own code, precision class; the note has what each found."""
    _told(stages)
    words = [ghost_test(stages), own_share(stages)]
    launches_unwatched(stages)
    label = precision_class(stages)
    return ", ".join(w for w in (*words, label) if w)


def launches_unwatched(stages: Stages) -> None:
    """Refused when own kernels run only under the dispatch mode by which their share is taken, and which code can see.

    Calls with and without it take turns on one case: a graph that replays what was launched once launches in neither.
    """
    if stages.traced is None or not stages.traced[1]:
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
    """The names of the launches inside, once it has ended."""
    names: list[str] = []
    stages.worker.ghost([], stages.context.left(HONEST.ghost_seconds))
    yield names
    names += stages.worker.ghost(None, stages.context.left(HONEST.ghost_seconds))


def _told(stages: Stages) -> None:
    """Says of a task that its own inputs let degenerate kernels pass: it counts in no headline figure."""
    found = audit(stages.task)
    if not found.discriminating:
        stages.context.findings.add(
            Mark(kind="task-not-discriminating"), *(WeakTask(rule=rule, reason=why) for rule, why in found.flags)
        )


def own_share(stages: Stages) -> str:
    """The share of a call's time that is not spent in the framework's own compute operators."""
    if stages.context.interpreted:
        static = of(stages.context.findings.conditions, StaticFinding)
        if stages.context.options.allow_library and any(finding.rule == "library" for finding in static):
            stages.context.findings.add(LibraryShare())
            stages.context.findings.composed = "It composes with the library, whose work is not its own."
        return "share of own kernels not measured in the interpreter"
    case = cases.case(stages.task, stages.task.module().default_sizes(), Family.OWN)
    share, names, ran = _traced(stages, case)
    if stages.replays and not any(_own(name, stages.replays) for name in ran):
        # a launch that was seen only once may never be repeated
        share = 0.0
    counts = _counted(stages, case)
    refuse_strangers(stages, case, counts, "")
    if counts.leans and counts.share < share:
        share, names = counts.share, most(counts.libraries)
    stages.context.findings.own_share = share
    in_names = ", ".join(names[:4])
    if share < HONEST.own_share and not stages.context.options.allow_library:
        what = f"the framework's own {in_names}" if names else "no kernel of its own"
        if counts.leans:
            what = f"{in_names}, not its own code, by {counts.all} samples of its program counters"
        message = f"{1 - share:.0%} of the time is in {what}"
        if package := undeclared(stages.context.adapter, names):
            message += (
                f"; where {package} compiles this source's kernels in memory, the DSL's {SPEC} says so: "
                f'worker.runtime = ["{package}"]'
            )
        raise stages.refused(case, "library", message)
    if names and stages.context.options.allow_library:
        # what the library does is never the kernel's own, however little it is
        stages.context.findings.add(LibraryShare(share=1 - share))
        stages.context.findings.composed = (
            f"It composes with the library: {1 - share:.0%} of its time is {in_names}, not its own."
        )
    elif share < HONEST.own_share:
        stages.context.findings.add(LibraryShare())
    how = f"{counts.all} program counters" if counts.told else "as reported by its own process"
    return f"{share:.0%} of the time in own code ({how})" + (f", the rest in {in_names}" if names else "")


def undeclared(adapter: Adapter, names: Sequence[str]) -> str:
    """The package of a DSL that only documents describe of which one of ``names``, files of libraries, is, where its
    spec names no runtime; else empty."""
    found = (mark for mark in adapter.marks if any(name.startswith(mark) for name in names))
    return next(found, "") if isinstance(adapter, DocumentedAdapter) and not adapter.runtime else ""


def refuse_strangers(stages: Stages, case: Case, counts: Counted, where: str) -> None:
    """Refuses work in code of which nothing tells whose it is, whatever else is allowed."""
    if counts.strange:
        names = ", ".join(most(counts.strangers))
        share = f"{counts.strange:.0%} of {counts.all} samples{where}"
        what = f"{share} are in code that is neither the candidate's nor known ({names})"
        raise stages.refused(case, "unknown-code", what)


def _traced(stages: Stages, case: Case) -> tuple[float, list[str], list[str]]:
    """The share outside the framework's compute operators, the names of those, and of all kernels that ran on the
    device, as the worker's process says it."""
    layout = lay_out(case.args)
    stages.worker.write(0, layout, case.args)
    try:
        with _launches(stages) as seen:
            answer = stages.worker.trace(layout, 0, stages.context.left(3 * stages.call_deadline(case)))
        stages.traced = case, seen
        total, library = float(answer["total"]), {str(k): float(v) for k, v in dict(answer["library"]).items()}
        if only_moves(stages.task):
            moves = {str(k): float(v) for k, v in dict(answer.get("moves") or {}).items()}
            library |= moves
            # a device's are not in its total
            total += sum(moves.values()) if stages.context.request.backend is Backend.CUDA else 0.0
        ran = list(map(str, answer.get("kernels") or ()))
        if not all(isfinite(s) and s >= 0 for s in (total, *library.values())):
            raise ValueError("impossible times")
    except WorkerFailure as failure:
        raise stages.failed("honest", failure, case) from failure
    except (KeyError, TypeError, ValueError):
        raise Refused("The worker's answer to the trace is malformed.", Evidence(signature="protocol")) from None
    return max(0.0, 1.0 - sum(library.values()) / total) if total > 0 else 1.0, list(library), ran


def only_moves(task: Task) -> bool:
    """Does the reference compute nothing? Then a copy by the framework is the task's work, and not its preparation."""
    cost = audit(task).cost
    return not cost.problem and not cost.total_flops and not cost.other_flops


def _counted(stages: Stages, case: Case) -> Counted:
    """What sampled program counters say of the same; on a device the work is not in them."""
    if stages.context.request.backend is not Backend.CPU:
        return Counted(unseen="the work is done on a device")
    try:
        found = counted(stages, case, only_moves(stages.task))
    except WorkerFailure as failure:
        raise stages.failed("honest", failure, case) from failure
    if found.unseen:
        stages.context.findings.add(OwnShareUnseen(reason=found.unseen))
    stages.context.findings.hot = found.hot
    return found


def _own(kernel: str, launched: list[str]) -> bool:
    """Is a kernel that ran on the device, by its name, neither a library's nor one that only fills or moves?"""
    return kernel in launched or not (is_library(kernel) or is_move(kernel))
