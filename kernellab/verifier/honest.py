"""The stage honest: is the work done by the candidate's own code?"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kernellab.records import Evidence
from kernellab.task_inputs import Family
from kernellab.verifier import cases
from kernellab.verifier.ablation import ghost_test
from kernellab.verifier.audit import audit
from kernellab.verifier.cuda_trace import is_library, is_move
from kernellab.verifier.memory import lay_out
from kernellab.verifier.pipeline import Refused
from kernellab.verifier.precision import precision_class
from kernellab.verifier.process import WorkerFailure
from kernellab.verifier.rules import HONEST

if TYPE_CHECKING:
    import torch

    from kernellab.verifier.stages import Stages

    Tensor = torch.Tensor


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
            stages.worker.trace(layout, 0, stages.v.left(3 * seconds))
    except WorkerFailure as failure:
        raise stages.failed("honest", failure, case) from failure
    if not watched:
        return
    message = f"its own {', '.join(names[:4])} runs only while the framework's dispatcher is watched"
    if not stages.v.options.allow_library:
        raise stages.refused(case, "ghost", message)
    stages.v.state.flags.append(f"ghost: {message}")


@contextmanager
def _launches(stages: Stages) -> Iterator[list[str]]:
    """The names of the launches inside, once it has ended."""
    names: list[str] = []
    stages.worker.ghost([], stages.v.left(HONEST.ghost_seconds))
    yield names
    names += stages.worker.ghost(None, stages.v.left(HONEST.ghost_seconds))


def _told(stages: Stages) -> None:
    """Says of a task that its own inputs let degenerate kernels pass: it counts in no headline figure."""
    found = audit(stages.task)
    if not found.discriminating:
        stages.v.state.labels.append("task not discriminating")
        stages.v.state.flags += [f"task: {rule}: {reason}" for rule, reason in found.flags]


def own_share(stages: Stages) -> str:
    """The share of a call's time that is not spent in the framework's own compute operators."""
    if stages.v.interpreted:
        if stages.v.options.allow_library and any(flag.startswith("library:") for flag in stages.v.state.flags):
            stages.v.state.labels.append("library")
            stages.v.state.composed = "It composes with the library, whose work is not its own."
        return "share of own kernels not measured in the interpreter"
    case = cases.case(stages.task, stages.task.module().default_sizes(), Family.OWN)
    layout = lay_out(case.args)
    stages.worker.write(0, layout, case.args)
    try:
        with _launches(stages) as seen:
            answer = stages.worker.trace(layout, 0, stages.v.left(3 * stages.call_deadline(case)))
        stages.traced = case, seen
        total, library = float(answer["total"]), {str(k): float(v) for k, v in dict(answer["library"]).items()}
    except WorkerFailure as failure:
        raise stages.failed("honest", failure, case) from failure
    except (KeyError, TypeError, ValueError):
        raise Refused("The worker's answer to the trace is malformed.", Evidence(signature="protocol")) from None
    share = max(0.0, 1.0 - sum(library.values()) / total) if total > 0 else 1.0
    if stages.replays and not any(_own(name, stages.replays) for name in getattr(stages.worker, "kernels", ())):
        # a launch that was seen only once may never be repeated
        share = 0.0
    stages.v.state.update["own_share"] = share
    names = ", ".join(list(library)[:4])
    if share < HONEST.own_share and not stages.v.options.allow_library:
        what = f"the framework's own {names}" if names else "no kernel of its own"
        message = f"{1 - share:.0%} of the time is in {what}; --allow-library takes that"
        raise stages.refused(case, "library", message)
    if names and stages.v.options.allow_library:
        # what the library does is never the kernel's own, however little it is
        stages.v.state.labels.append(f"library {1 - share:.0%}")
        stages.v.state.composed = f"It composes with the library: {1 - share:.0%} of its time is {names}, not its own."
    elif share < HONEST.own_share:
        stages.v.state.labels.append("library")
    return f"{share:.0%} of the time in own code" + (f", the rest in {names}" if names else "")


def _own(kernel: str, launched: list[str]) -> bool:
    """Is a kernel that ran on the device, by its name, neither a library's nor one that only fills or moves?"""
    return kernel in launched or not (is_library(kernel) or is_move(kernel))
