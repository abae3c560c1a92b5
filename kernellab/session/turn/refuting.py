"""Inputs at which one kernel lost digits are a test of those that passed before it: their own draws may have missed
such inputs, and a change of tiles moves roundings without any change of what is computed."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from kernellab.errors import VerifierError
from kernellab.records import Evidence, Stage, Trust, Verdict
from kernellab.session.engine.engine import engine
from kernellab.session.record.state import Best, State
from kernellab.session.turn.context import Bench
from kernellab.verifier.protocol.remedies import lost_digits

if TYPE_CHECKING:
    from kernellab.task import Task
    from kernellab.verifier.protocol.options import DrawnCase, VerifyOptions

#: so many of a session's counterexamples are tried, the newest ones
_MOST = 4


def counterexamples(task: Task, state: State) -> tuple[DrawnCase, ...]:
    """Inputs at which kernels of the session lost digits, the newest last."""
    found = [case for turn in state.turns.values() if turn.verdict and (case := _case(task, turn.verdict))]
    return tuple({case.model_dump_json(): case for case in found}.values())[-_MOST:]


def refuted(
    bench: Bench, best: Best, verdict: Verdict, number: int, options: VerifyOptions, cancel: threading.Event
) -> tuple[str, Verdict] | None:
    """The ``best`` kernel's Verifier turn and what the judge, with that kernel's ``options``, says of it at the inputs
    at which the kernel of turn ``number`` lost digits; None where it is right there, and where there is nothing to try.
    Blocking."""
    task = bench.task()
    case = _case(task, verdict)
    if case is None or cancel.is_set():
        return None
    asked = options.model_copy(update={"level": Trust.T1, "counterexamples": (case,)})
    began = time.perf_counter()
    try:
        with engine().verifying:
            again = engine().verifier().verify(
                task, best.candidate.source, bench.target(), options=asked, cancel=cancel
            )  # fmt: skip
    except VerifierError:
        return None  # it keeps the verdict that it has
    finally:
        if bench.target().chip.kind == "gpu":
            bench.budget.spend(gpu_s=time.perf_counter() - began)
    if again.passed or again.stage is not Stage.CORRECT or _drawn(task, again.evidence) != case:
        return None  # a verification draws other cases too: what fails at these refutes nothing at those
    reason = f"It passed at first, and is wrong at the inputs at which the kernel of turn {number} is: {again.reason}"
    return best.turn.id, again.model_copy(update={"reason": reason})


def _case(task: Task, verdict: Verdict) -> DrawnCase | None:
    """The inputs at which a kernel lost digits; None where it did not, and where no seed draws them."""
    seen = verdict.evidence
    if verdict.passed or verdict.stage is not Stage.CORRECT or seen is None or not lost_digits(seen):
        return None
    return _drawn(task, seen)


def _drawn(task: Task, seen: Evidence | None) -> DrawnCase | None:
    """The inputs of the evidence: sizes, family and seed; None where no seed draws them."""
    from kernellab.verifier.protocol.options import DrawnCase

    if seen is None or seen.seed is None or not seen.family:
        return None
    dims = {dim.name for dim in task.dims}
    sizes = {name: size for name, size in seen.sizes.items() if name in dims}
    return DrawnCase(sizes=sizes, family=seen.family, seed=seen.seed)
