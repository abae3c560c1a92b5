"""The fast stage of one verification: the runs, their comparisons, the bound, and what is said of the machine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kernellab.errors import VerifierError
from kernellab.records import Evidence
from kernellab.target import Backend
from kernellab.task_inputs import Family
from kernellab.verifier import cases, clock, device, evidence, stats, turns
from kernellab.verifier.bound import Bound
from kernellab.verifier.cases import Case
from kernellab.verifier.pipeline import Refused, numbered
from kernellab.verifier.process import WorkerFailure
from kernellab.verifier.rivals import rival
from kernellab.verifier.rules import COMPILED, DEADLINES, TIMING
from kernellab.verifier.sides import BaselineFailed, Result, Side, WrongWhenTimed
from kernellab.verifier.timed import measure
from kernellab.verifier.timed_cuda import Inconsistent
from kernellab.verifier.timed_cuda import measure as measure_on_device

if TYPE_CHECKING:
    from kernellab.verifier.stages import Stages


def fast(stages: Stages) -> str:
    """Times the candidate against its baselines and puts the figures in the verification's state; the stage's note."""
    options, state = stages.v.options, stages.v.state
    results: list[Result] = [_measure(stages) for _ in range(options.repeat)]
    first = results[0]
    busy = any(r.busy for r in results)
    ours = [s for r in results for s in r.candidate.seconds]
    comparisons = [
        stats.compare(
            name,
            [s for r in results for s in _side(r, name).seconds],
            ours,
            busy=busy,
            noise=max(r.noise for r in results),
            waited=(
                [w for r in results for w in _side(r, name).waited],
                [w for r in results for w in r.candidate.waited],
            ),
        )
        for name in [b.name for b in first.baselines if all(b.name in _names(r) for r in results)]
    ]
    time = stats.timing(stats.calm(ours) if busy else ours)
    _bound(stages, time.median_ms)
    state.update |= {"time": time, "comparisons": comparisons}
    clock, claimed = first.clocks
    state.labels += first.labels
    if first.device is None and claimed - clock > max(TIMING.clock_share * clock, TIMING.clock_seconds):
        state.labels.append("clocks disagree")
    state.disturbed = max(r.disturbed for r in results)
    if state.disturbed > TIMING.busy_share:
        state.flags.append(f"busy machine: other work disturbed {state.disturbed:.0%} of the timed calls")
    if busy:
        state.labels.append("busy machine")
    checked = sum(r.checked for r in results)
    more = f"; {first.note}" if first.note else ""
    more += "; before other work of the machine" if all(r.ahead for r in results) else ""
    return f"{len(ours)} timed calls, {checked} checked, handshake {first.handshake * 1e6:.0f} us{more}"


def _measure(stages: Stages) -> Result:
    names = [*stages.baselines(), *stages.v.options.rivals]
    budget = stages.v.options.budget
    while True:
        case = cases.case(stages.task, stages.task.module().default_sizes(), Family.OWN)
        deadline = stages.call_deadline(case)
        try:
            return _timed(stages, names, case, budget, deadline)
        except BaselineFailed as failed:
            stages.v.pool.drop_kind(failed.name, stages.task)
            if failed.name == "eager":
                raise VerifierError(
                    f"The reference's own worker: {str(failed).rstrip('.')}{evidence.inside(failed.failure)}.",
                    "Check the task by itself.",
                ) from None
            stages.v.state.labels.append(f"no {failed.name} baseline")
            stages.v.state.flags.append(f"baseline {failed.name}: {str(failed).strip().splitlines()[0].rstrip('.')}")
            names.remove(failed.name)
        except Inconsistent as inconsistent:
            word = inconsistent.signature
            raise Refused(f"The times cannot be believed: {inconsistent}; {word.replace('-', ' ')}.",
                          Evidence(signature=word)) from inconsistent  # fmt: skip
        except WrongWhenTimed as wrong:
            raise _wrong_when_timed(stages, case, wrong) from wrong
        except WorkerFailure as failure:
            raise Refused(stages.words("fast", failure, case),
                          evidence.of_failure(stages.v.adapter, stages.source, failure, case)) from failure  # fmt: skip


def _timed(stages: Stages, names: Sequence[str], case: Case, budget: float, deadline: float) -> Result:
    """One run on ``case`` against the baselines ``names``, alone on the device."""
    backend = stages.v.request.backend
    sides: list[Side] = []

    def baselines() -> None:
        # torch.compile takes seconds of a core and a few calls on the device
        sides.extend(_baseline(stages, name, number, case) for name, number in numbered(names))

    with turns.alone(baselines) as waited, clock.alone(device.clock_name(backend)) as held, stages.v.pool.quiet():
        # the time of others is not the candidate's
        stages.v.end += waited + held.waited
        if not held.had:
            stages.v.state.labels.append("shared clock")
        if backend is Backend.CUDA:
            from kernellab.verifier.bound_cuda import speed_of_light

            # its roofs are measured once, while nobody else works on the device
            speed_of_light(stages.task, stages.tf32)
        run = measure_on_device if backend is Backend.CUDA else measure
        return run(
            stages.task, case.args, Side("candidate", stages.worker), sides, stages.limits,
            budget=min(budget, stages.v.left(budget)), deadline=deadline,
        )  # fmt: skip


def _baseline(stages: Stages, name: str, number: int, case: Case) -> Side:
    if name in stages.v.options.rivals:
        return rival(stages, name, case)
    deadline = stages.v.left(DEADLINES.compile if name in COMPILED else DEADLINES.build)
    try:
        worker = stages.v.pool.baseline(
            stages.source.dsl, stages.v.request.backend, name, stages.task, stages.threads, deadline, number
        )
    except WorkerFailure as failure:
        raise BaselineFailed(name, failure) from failure
    return Side(name, worker)


def _wrong_when_timed(stages: Stages, case: Case, wrong: WrongWhenTimed) -> Refused:
    shown = evidence.of_mismatch(
        stages.source, case, wrong.output, wrong.got, wrong.reference, wrong.mismatch, earlier=stages.answers
    )
    # the correct stage passed on other contents, so what it gives now belongs to other contents
    name = shown.signature if shown.signature in ("all-zero", "identity", "edge-tile") else "stale"
    found = shown.model_copy(update={"signature": name, "reproduction": ""})
    return Refused(f"A timed call is wrong: {wrong.mismatch.message}; {name}.", found)


def _bound(stages: Stages, time_ms: float) -> None:
    if stages.v.request.backend is Backend.CUDA:
        _bound_on_device(stages, time_ms)
        return
    from kernellab.verifier.bound import speed_of_light

    bound = speed_of_light(stages.task, stages.threads)
    if bound is None:
        return
    stages.v.state.update["sol_ms"] = bound.ms
    stages.v.state.roofs = bound.bandwidth, bound.rate
    if _under(bound, time_ms):
        stages.v.state.labels.append("under the byte floor, ask for T4")


def _bound_on_device(stages: Stages, time_ms: float) -> None:
    from kernellab.verifier.bound_cuda import copy_rate, speed_of_light

    bound = speed_of_light(stages.task, stages.tf32)
    if _under(bound, time_ms):
        # a copy that somebody disturbed must not refuse an honest kernel
        with turns.alone() as waited:
            stages.v.end += waited
            copy_rate(again=True)
        bound = speed_of_light(stages.task, stages.tf32)
    if bound is None:
        return
    stages.v.state.update["sol_ms"] = bound.ms
    stages.v.state.roofs = bound.bandwidth, bound.rate
    if _under(bound, time_ms):
        floor = bound.byte_floor_ms or 0.0
        raise Refused(
            f"The time of {time_ms:.4g} ms is less than its bytes need on this device ({floor:.4g} ms); byte floor.",
            Evidence(signature="byte-floor"),
        )


def _under(bound: Bound | None, time_ms: float) -> bool:
    return bound is not None and bound.byte_floor_ms is not None and time_ms < TIMING.byte_floor * bound.byte_floor_ms


def _side(result: Result, name: str) -> Side:
    return next(b for b in result.baselines if b.name == name)


def _names(result: Result) -> list[str]:
    return [b.name for b in result.baselines]
