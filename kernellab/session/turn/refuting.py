"""Tests earlier kernels at inputs at which another kernel lost digits: their own inputs may have missed such
values, and a change of tiles changes rounding without changing what is computed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernellab.errors import VerifierError
from kernellab.records import Evidence, Stage, Trust, Verdict
from kernellab.session.engine.engine import engine
from kernellab.session.record.standings import Best
from kernellab.session.record.state import State
from kernellab.session.turn.context import Bench, Channel, charging_gpu_time
from kernellab.verifier.protocol.remedies import lost_digits

if TYPE_CHECKING:
    from kernellab.task import Task
    from kernellab.verifier.protocol.options import DrawnCase, VerifyOptions

#: Maximum number of a session's counterexamples that are tried; the newest ones.
_MOST = 4


def counterexamples(task: Task, state: State) -> tuple[DrawnCase, ...]:
    """The inputs at which kernels of the session lost digits, the newest last."""
    cases = [case for turn in state.turns.values() if turn.verdict and (case := _case(task, turn.verdict))]
    return tuple({case.model_dump_json(): case for case in cases}.values())[-_MOST:]


def refuted(
    bench: Bench, best: Best, verdict: Verdict, number: int, options: VerifyOptions, channel: Channel
) -> tuple[str, Verdict] | None:
    """Judge the ``best`` kernel, with its ``options``, at the inputs at which the kernel of turn ``number`` lost
    digits. Return its Verifier turn and the new verdict; None if it is correct there, or there is nothing to try.
    Blocking."""
    task = bench.task()
    case = _case(task, verdict)
    if case is None or channel.cancel.is_set():
        return None
    case_options = options.model_copy(update={"level": Trust.T1, "counterexamples": (case,)})
    channel.say(f"trying turn {best.number}, the best so far, at these inputs")
    target = bench.target()
    try:
        with charging_gpu_time(bench, target), engine().verifying:
            judged = engine().verifier().verify(
                task, best.candidate.source, target, options=case_options, cancel=channel.cancel
            )  # fmt: skip
    except VerifierError:
        return None  # it keeps its verdict
    if judged.passed or judged.stage is not Stage.CORRECT or _drawn(task, judged.evidence) != case:
        return None  # a verification draws other cases too; a failure at those does not concern these inputs
    reason = f"It passed at first, and is wrong at the inputs at which the kernel of turn {number} is: {judged.reason}"
    return best.turn.id, judged.model_copy(update={"reason": reason})


def _case(task: Task, verdict: Verdict) -> DrawnCase | None:
    """The inputs at which a kernel lost digits; None if it did not, or if no seed generates them."""
    evidence = verdict.evidence
    if verdict.passed or verdict.stage is not Stage.CORRECT or evidence is None or not lost_digits(evidence):
        return None
    return _drawn(task, evidence)


def _drawn(task: Task, seen: Evidence | None) -> DrawnCase | None:
    """The inputs of the evidence: sizes, family and seed; None if no seed generates them."""
    from kernellab.verifier.protocol.options import DrawnCase

    if seen is None or seen.seed is None or not seen.family:
        return None
    dims = {dim.name for dim in task.dims}
    sizes = {name: size for name, size in seen.sizes.items() if name in dims}
    return DrawnCase(sizes=sizes, family=seen.family, seed=seen.seed)
