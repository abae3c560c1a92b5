"""The fast stage of one verification: timed runs, their comparisons, the time bound, and conditions of the machine."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from kernellab.conditions import BaselineMissing, DisturbedCalls, Mark, MoreCores, joined
from kernellab.errors import VerifierError, counted
from kernellab.records import Comparison, Evidence
from kernellab.target import Backend
from kernellab.task.sample.inputs import Family
from kernellab.verifier.attribution.counters import Unseen
from kernellab.verifier.attribution.profile import Profile
from kernellab.verifier.attribution.share import SampledLooks, count_looks, hot_spots, leading_names
from kernellab.verifier.audit.bound import Bound
from kernellab.verifier.cases import cases, device
from kernellab.verifier.cases.cases import Case
from kernellab.verifier.compare.compare import metadata
from kernellab.verifier.cuda.timed import Inconsistent
from kernellab.verifier.cuda.timed import measure as measure_on_device
from kernellab.verifier.judge import clock, turns
from kernellab.verifier.judge.process import WorkerFailure
from kernellab.verifier.judge.worker_client import Worker
from kernellab.verifier.protocol import stats
from kernellab.verifier.protocol.memory import lay_out
from kernellab.verifier.protocol.rules import COMPILED, DEADLINES, HONEST, TIMING
from kernellab.verifier.stages import evidence
from kernellab.verifier.stages.canaries import canaries_of
from kernellab.verifier.stages.context import numbered
from kernellab.verifier.stages.honest import only_moves, refuse_strangers
from kernellab.verifier.stages.refused import Refused
from kernellab.verifier.timing.floor import Rates, cpu_rates, floor
from kernellab.verifier.timing.sides import (
    VERDICT,
    BaselineFailed,
    DishonestWhenTimed,
    Pace,
    Result,
    Side,
    WrongWhenTimed,
)
from kernellab.verifier.timing.timed import measure

if TYPE_CHECKING:
    from kernellab.verifier.stages.candidate import Stages


@dataclass(frozen=True)
class Setup:
    """What a candidate is timed against: baselines and rivals by name, the number of eager workers, the pace, whether
    calls with other contents are mixed into the timed ones, and the ``case`` if it exists already."""

    names: tuple[str, ...]
    eagers: int = 2
    canaries: bool = True
    pace: Pace = VERDICT
    case: Case | None = None


def fast(stages: Stages) -> str:
    """Time the candidate against its baselines, add the figures to the findings, and return the stage's note."""
    options, findings = stages.context.options, stages.context.findings
    setup = Setup((*stages.baselines(), *options.rivals))
    results: list[Result] = []
    for number in range(options.repeat):
        again = f" ({number + 1} of {options.repeat})" if options.repeat > 1 else ""
        stages.context.tell(f"timing against {' and '.join(stages.baselines()) or 'nothing'}{again}")
        results.append(measured(stages, setup))
    busy = any(r.busy for r in results)
    ours = [s for r in results for s in r.candidate.seconds]
    comparisons = _comparisons(results, busy)
    time = stats.timing(stats.calm(ours) if busy else ours)
    sampled = _own_when_timed(stages, time.median_ms * 1e-3, busy)
    eager = [s for r in results if "eager" in _names(r) for s in _side(r, "eager").seconds]
    _bound(stages, time.median_ms, min(eager, default=math.inf))
    # A refused kernel has no figures.
    findings.time, findings.comparisons = time, comparisons
    # Without samples of timed calls, those of the stage honest show the hot lines as well.
    findings.hot = hot_spots([p.of_all() for p in stages.profiles]) or findings.hot
    findings.add(*joined(*(r.conditions for r in results)))
    _add_machine_conditions(stages, results, busy)
    return _note(results, sampled)


def _comparisons(results: Sequence[Result], busy: bool) -> list[Comparison]:
    """Return the candidate's comparison with each baseline that all runs have, their calls taken together."""
    ours = [s for r in results for s in r.candidate.seconds]
    our_waits = [w for r in results for w in r.candidate.waited]
    noise = max(r.noise for r in results)
    comparisons = []
    for name in [b.name for b in results[0].baselines if all(b.name in _names(r) for r in results)]:
        sides = [_side(r, name) for r in results]
        theirs, their_waits = [s for side in sides for s in side.seconds], [w for side in sides for w in side.waited]
        waits = (their_waits, our_waits)
        comparisons.append(stats.compare(name, theirs, ours, busy=busy, noise=noise, waited=waits))
    return comparisons


def _add_machine_conditions(stages: Stages, results: Sequence[Result], busy: bool) -> None:
    """Add what the runs say of cores, clocks and other work on the machine."""
    findings = stages.context.findings
    cores = max(r.cores for r in results)
    if cores > stages.threads + TIMING.extra_cores:
        findings.add(MoreCores(cores=cores, baselines=stages.threads))
    if any(r.device is None and _clocks_disagree(*r.clocks) for r in results):
        findings.add(Mark(kind="clocks-disagree"))
    findings.disturbed = max(r.disturbed for r in results)
    if findings.disturbed > TIMING.busy_share:
        findings.add(DisturbedCalls(share=findings.disturbed))
    if busy:
        findings.add(Mark(kind="busy-machine"))


def _note(results: Sequence[Result], sampled: int) -> str:
    """Return the stage's note; ``sampled`` is the number of program counters in the timed calls."""
    first = results[0]
    calls, checked = sum(len(r.candidate.seconds) for r in results), sum(r.checked for r in results)
    parts = [f"{calls} timed calls, {checked} checked, handshake {first.handshake * 1e6:.0f} us"]
    if first.note:
        parts.append(first.note)
    if sampled:
        parts.append(f"{sampled} program counters in them")
    left_out = sum(r.left_out for r in results)
    if left_out:
        others_seconds = sum(r.others for r in results)
        parts.append(f"{counted(left_out, 'call')} left out: other processes had the cores for {others_seconds:.2g} s")
    if all(r.ahead for r in results):
        parts.append("ran with priority over other jobs")
    return "; ".join(parts)


def _clocks_disagree(judge_clock: float, claimed: float) -> bool:
    """Return whether the worker claims more seconds than the judge saw, by more than clocks differ."""
    return claimed - judge_clock > max(TIMING.clock_share * judge_clock, TIMING.clock_seconds)


def _own_when_timed(stages: Stages, seconds: float, busy: bool) -> int:
    """Refuse if timed calls, of ``seconds`` each, or calls between them spend their time in a library. Return the
    number of samples in timed calls, 0 if the system provides none. On a ``busy`` machine the fastest calls determine
    the time, so they are also checked separately."""
    single = stages.looks.sampler if stages.looks is not None else None
    between: list[SampledLooks] = [s for s in (single, stages.watch) if s is not None]
    within: list[SampledLooks] = [p.of_all() for p in stages.profiles]
    calm: list[SampledLooks] = [p.of_calm() for p in stages.profiles] if busy else []
    for where, sources in (("In the timed calls", [*within, *calm]), ("During calls among the timed ones", between)):
        for attribution in (count_looks(source, seconds, only_moves(stages.task)) for source in sources):
            refuse_strangers(stages, own_case(stages), attribution, f" {where[:1].lower()}{where[1:]}")
            if attribution.is_mostly_library and not stages.context.options.allow_library:
                names = ", ".join(leading_names(attribution.libraries))
                share = f"{1 - attribution.share:.0%} of {attribution.total} samples"
                raise Refused(
                    f"{where} {share} of its program counters are in {names}; library.",
                    Evidence(signature="library"),
                )
    return sum(len(source.looks) for source in within)


#: Remedy if torch reports that an operation's tensors are on several devices.
_PLACED = "Make the reference's own tensors where its inputs are: torch.arange(n, device=x.device)."


def measured(stages: Stages, setup: Setup) -> Result:
    """Run and check the timed calls once.

    Raises:
        Refused: A timed call is wrong, breaks a rule or fails, or its time is not plausible.
        VerifierError: The reference's own worker fails.
    """
    names = list(setup.names)
    while True:
        case = setup.case or own_case(stages)
        deadline = stages.call_deadline(case)
        try:
            return _timed(stages, replace(setup, names=tuple(names)), case, deadline)
        except BaselineFailed as failed:
            stages.context.pool.drop_kind(failed.name, stages.task)
            if failed.name == "eager":
                raise VerifierError(
                    f"The reference's own worker: {str(failed).rstrip('.')}{evidence.inside(failed.failure)}.",
                    _PLACED if "same device" in str(failed) else "Check the task by itself.",
                ) from None
            first = str(failed).strip().splitlines()[0].rstrip(".")
            stages.context.findings.add(BaselineMissing(baseline=failed.name, reason=first))
            names.remove(failed.name)
        except Inconsistent as inconsistent:
            word = inconsistent.signature
            raise Refused(f"The times are inconsistent: {inconsistent}; {word.replace('-', ' ')}.",
                          Evidence(signature=word)) from inconsistent  # fmt: skip
        except DishonestWhenTimed as dishonest:
            raise stages.refused(case, dishonest.signature, str(dishonest)) from dishonest
        except WrongWhenTimed as wrong:
            raise _wrong_when_timed(stages, wrong) from wrong
        except WorkerFailure as failure:
            raise stages.failed("fast", failure, case) from failure


def own_case(stages: Stages) -> Case:
    """Return a new case to be timed."""
    return cases.case(stages.task, stages.task.module().default_sizes(), Family.OWN)


def _timed(stages: Stages, setup: Setup, case: Case, deadline: float) -> Result:
    """Run once on ``case`` with exclusive use of the device."""
    backend, budget = stages.context.request.backend, stages.context.options.budget
    sides: list[Side] = []
    canaries = canaries_of(stages, case) if setup.canaries else []

    def baselines() -> None:
        # torch.compile takes seconds on a core and a few calls on the device.
        sides.extend(_baseline(stages, name, number, case) for name, number in numbered(setup.names, setup.eagers))

    with (
        turns.alone(baselines) as waited,
        clock.alone(device.clock_name(backend)) as clock_turn,
        stages.context.pool.quiet(),
    ):
        # Time used by other processes does not count against the candidate.
        stages.context.wait(waited + clock_turn.waited)
        if not clock_turn.had:
            stages.context.findings.add(Mark(kind="shared-clock"))
        if backend is Backend.CUDA and setup.canaries:
            from kernellab.verifier.cuda.bound import speed_of_light

            # The roofs are measured once, while no other process works on the device.
            speed_of_light(stages.task, stages.tf32)
        profile = _profile(stages) if setup.canaries else None
        measure_here = partial(measure, looks=stages.looks, profile=profile)
        run = measure_on_device if backend is Backend.CUDA else measure_here
        with profile or nullcontext():
            return run(
                stages.task, case.args, Side("candidate", stages.worker), sides, stages.comparison,
                budget=min(budget, stages.context.left(budget)), deadline=deadline, canaries=canaries, pace=setup.pace,
            )  # fmt: skip


def _profile(stages: Stages) -> Profile | None:
    """Return a profile of the timed calls, if they run on the host and the system provides samples; else None."""
    if stages.context.request.backend is not Backend.CPU:
        return None
    try:
        stages.profiles.append(Profile(stages.worker))
    except Unseen:
        return None
    return stages.profiles[-1]


def _baseline(stages: Stages, name: str, number: int, case: Case) -> Side:
    if name in stages.context.options.rivals:
        return rival(stages, name, case)
    deadline = stages.context.left(DEADLINES.compile if name in COMPILED else DEADLINES.build)
    try:
        worker = stages.context.pool.baseline(
            stages.source.dsl, stages.context.request.backend, name, stages.task, stages.threads, deadline, number
        )
    except WorkerFailure as failure:
        raise BaselineFailed(name, failure) from failure
    worker.written = stages.written
    return Side(name, worker)


def _wrong_when_timed(stages: Stages, timed: WrongWhenTimed) -> Refused:
    wrong = timed.wrong
    reference = wrong.case.references[wrong.output]
    shown = evidence.of_mismatch(
        stages.source, wrong.case, wrong.output, wrong.got, reference, wrong.mismatch, earlier=stages.answers
    )
    # The correct stage passed on other contents, so a wrong result now belongs to other contents, unless it is close,
    # or wrong only in a few elements.
    near = shown.rel_frobenius is not None and shown.rel_frobenius < HONEST.rounding_error
    near = near or (shown.wrong_fraction is not None and shown.wrong_fraction < HONEST.own_wrong_share)
    name = shown.signature if near or shown.signature in ("all-zero", "identity", "edge-tile") else "stale"
    report = shown.model_copy(update={"signature": name, "reproduction": ""})
    return Refused(f"A timed call is wrong: {wrong.mismatch.message}; {name}.", report)


def _bound(stages: Stages, time_ms: float, eager_least: float) -> None:
    """Refuse an impossible time; ``eager_least`` is the time of eager's fastest call in seconds."""
    if stages.context.request.backend is Backend.CUDA:
        _bound_on_device(stages, time_ms, eager_least)
        return
    from kernellab.verifier.audit.bound import roofs_again, speed_of_light

    _refuse_below(stages, time_ms, eager_least, lambda again: cpu_rates(stages.threads, again))
    bound = speed_of_light(stages.task, stages.threads)
    if bound is not None and time_ms < bound.ms:
        # Other work may have slowed the copies and products on which the bound rests.
        with turns.alone() as waited:
            stages.context.wait(waited)
            roofs_again(stages.threads)
        bound = speed_of_light(stages.task, stages.threads)
    if bound is None:
        return
    stages.context.findings.sol_ms = bound.ms
    stages.context.findings.roofs = bound.measured
    _refuse_byte_floor(bound, time_ms)
    if time_ms < bound.ms:
        # Above the floor, so it is possible; report it.
        stages.context.findings.add(Mark(kind="below-cached-bytes" if bound.by_bytes else "below-arithmetic"))


def _refuse_below(stages: Stages, time_ms: float, eager_least: float, rates: Callable[[bool], Rates]) -> None:
    """Refuse an impossible time, after measuring the rates once more."""
    rewritten = stages.context.options.rewritten
    if rewritten:
        stages.context.findings.add(Mark(kind="algebra"))
    low = floor(stages.task, rates(False), rewritten, eager_least)
    if low is None or time_ms * 1e-3 >= low.seconds:
        return
    with turns.alone() as waited:
        stages.context.wait(waited)
        low = floor(stages.task, rates(True), rewritten, eager_least)
    if low is not None and time_ms * 1e-3 < low.seconds:
        raise Refused(
            f"The time of {time_ms:.4g} ms is less than this machine needs for {low.why} ({low.seconds * 1e3:.4g} ms); "
            "below the floor.",
            Evidence(signature="below-floor"),
        )


def _bound_on_device(stages: Stages, time_ms: float, eager_least: float) -> None:
    from kernellab.verifier.cuda.bound import copy_rate, fastest_product, speed_of_light

    # The caches are emptied before each call, so the byte floor below applies.
    _refuse_below(stages, time_ms, eager_least, lambda again: Rates(0.0, fastest_product(again)))
    bound = speed_of_light(stages.task, stages.tf32)
    if _under(bound, time_ms):
        # A disturbed copy measurement must not refuse an honest kernel.
        with turns.alone() as waited:
            stages.context.wait(waited)
            copy_rate(again=True)
        bound = speed_of_light(stages.task, stages.tf32)
    if bound is None:
        return
    stages.context.findings.sol_ms = bound.ms
    stages.context.findings.roofs = bound.measured
    _refuse_byte_floor(bound, time_ms)


def _refuse_byte_floor(bound: Bound, time_ms: float) -> None:
    if _under(bound, time_ms):
        floor_ms = bound.byte_floor_ms or 0.0
        raise Refused(
            f"The time of {time_ms:.4g} ms is less than its bytes need on this device ({floor_ms:.4g} ms); byte floor.",
            Evidence(signature="byte-floor"),
        )


def _under(bound: Bound | None, time_ms: float) -> bool:
    return (
        bound is not None
        and bound.byte_floor_ms is not None
        and time_ms < TIMING.byte_floor_share * bound.byte_floor_ms
    )


def _side(result: Result, name: str) -> Side:
    return next(b for b in result.baselines if b.name == name)


def _names(result: Result) -> list[str]:
    return [b.name for b in result.baselines]


# -- a person's own kernels as baselines: each in a separate worker, and only if it is right ---------------------------


def rival(stages: Stages, name: str, case: Case) -> Side:
    """Return the side of ``options.rivals[name]``, built once per verification and right for ``case``.

    Raises:
        BaselineFailed: It does not build, ends, or answers wrongly; a wrong kernel is no baseline.
    """
    worker = stages.rivals.get(name)
    try:
        if worker is None or worker.gone():
            worker = stages.rivals[name] = stages.start(stages.context.options.rivals[name])
        wrong = _wrong(stages, worker, case)
    except WorkerFailure as failure:
        raise BaselineFailed(name, failure) from failure
    except Refused as refused:
        raise BaselineFailed(name, WorkerFailure("output", refused.reason)) from refused
    if wrong:
        raise BaselineFailed(name, WorkerFailure("output", f"it is wrong for the task's own inputs: {wrong}"))
    return Side(name, worker)


def _wrong(stages: Stages, worker: Worker, case: Case) -> str:
    """Return a message about the outputs for ``case``; empty if they are right."""
    layout = lay_out(case.args)
    worker.write(0, layout, case.args)
    call = worker.call(layout, (0,), stages.context.left(stages.call_deadline(case)))
    form_mismatch = metadata([(o.shape, o.dtype) for o in call.outputs], [r.native for r in case.references])
    if form_mismatch is not None:
        return form_mismatch.message
    wrong = stages.comparison.first_wrong(case, [worker.read(o) for o in call.outputs], counted=False)
    return wrong.mismatch.message if wrong is not None else ""
