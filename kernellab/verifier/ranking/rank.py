"""One ranking: static analysis, build, the smallest shape, three families, and a paired time that is about right.

What a search needs of each of its candidates, in about a second after the build. Plain errors are found here; what a
kernel does to deceive is found by a verification, which alone makes a verdict.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from kernellab.conditions import Mark
from kernellab.errors import TargetError
from kernellab.records import Ranking, Stage, StageResult
from kernellab.target import Backend
from kernellab.verifier.protocol import stats
from kernellab.verifier.protocol.rules import DEADLINES, RANK
from kernellab.verifier.stages.context import Context, Request
from kernellab.verifier.stages.pipeline import Steps, candidate_of

if TYPE_CHECKING:
    from kernellab.verifier.judge.pool import Pool
    from kernellab.verifier.ranking.cases import RankCases
    from kernellab.verifier.stages.candidate import Stages


class Ranked:
    """Runs the few stages of one ranking on the workers of ``pool``."""

    def __init__(self, request: Request, pool: Pool, progress: Callable[[StageResult], None]) -> None:
        self.context = Context.of(request, pool)
        self.steps = Steps(self.context, progress)

    def run(self) -> Ranking:
        """The ranking. Raises TaskError for a bad task, TargetError where nothing can be timed."""
        if self.context.interpreted:
            raise TargetError("Triton's interpreter cannot be timed.", "Rank on a GPU, or kernels in C++.")
        self.steps.static()
        built = time.perf_counter()
        if self.steps.failure is None:
            with candidate_of(self.context) as stages:
                built = self._workers(stages)
        return self._ranking(time.perf_counter() - built)

    def _workers(self, stages: Stages) -> float:
        """Takes the stages; when the build had ended, on a device with the first calls, in which a JIT compiles."""
        from kernellab.verifier.ranking.cases import RankCases

        steps, on_cpu = self.steps, self.context.request.backend is Backend.CPU
        # a GPU draws in no time, and its memory is others' too
        cases = stages.context.pool.recent.of(stages.task, RankCases) if on_cpu else RankCases(stages.task)
        with steps.compiling(Stage.BUILD):
            stages.begin_baselines(stages.baselines(), eagers=1)
            # on a device a step of these, drawn at full size, may take far longer than the build that it is to fill
            self.context.findings.build_seconds = stages.build(cases.made() if on_cpu else None)
        built = time.perf_counter()
        if steps.failure is None:
            with steps.compiling(Stage.SMOKE) as note:
                note.append(_smoke(stages, cases))
        built = time.perf_counter() if self.context.request.backend is Backend.CUDA else built
        steps.take(Stage.CORRECT, lambda s: _correct(s, cases), stages)
        steps.take(Stage.FAST, lambda s: _fast(s, cases), stages)
        return built

    def _ranking(self, seconds: float) -> Ranking:
        found, steps, failure = self.context.findings, self.steps, self.steps.failure
        return Ranking(
            ranked=failure is None,
            stage=steps.current,
            reason=failure.reason if failure else "No error found by a quick check; this is no verdict.",
            conditions=tuple(found.conditions),
            evidence=failure.evidence if failure else None,
            stages=steps.all(),
            time=found.time,
            paired=next(iter(found.comparisons), None),
            build_seconds=found.build_seconds,
            seconds=seconds,
        )


def _smoke(stages: Stages, cases: RankCases) -> str:
    stages.outputs(cases.smoke, "smoke", stages.context.left(DEADLINES.smoke))
    if stages.context.request.backend is Backend.CUDA:
        # a JIT compiles at its first call of a kind
        for found in (*cases.families, *cases.powers, cases.timed):
            stages.outputs(found, "smoke", stages.context.left(DEADLINES.smoke))
    stages.check(cases.smoke)
    return cases.smoke.words


def _correct(stages: Stages, cases: RankCases) -> str:
    """The families in memory that is poisoned and guarded, inputs as they were, earlier outputs not overwritten, none
    written late; sizes at the Dims' ends, other layouts and other scalars."""
    from kernellab.verifier.boundary_checks.drawn import drawn
    from kernellab.verifier.boundary_checks.fences import reads_inside
    from kernellab.verifier.boundary_checks.memory import untouched
    from kernellab.verifier.stages.properties import cheapest
    from kernellab.verifier.stages.robust import late, overwritten, ring

    first, *others = cases.families
    stages.check(first)
    untouched(stages, first)
    call = stages.sure_call(first, "correct")
    kept = [stages.worker.read(o) for o in call.outputs]
    for i, found in enumerate((*others, *cases.powers)):
        stages.check(found)
        if not i:
            # the worker holds the outputs of its last two calls
            overwritten(stages, first, call, kept)
    if stages.context.request.backend is Backend.CPU:
        reads_inside(stages, first)
        late(stages, first)
        for found in cases.ends:
            stages.check(found)
        if cases.small is not None:
            ring(stages, cases.small, cases.families[1])
            cheapest(stages, cases.small)
    drawn(stages, cases.drawn())
    # nothing is poisoned or guarded around a timed call, and most of those are compared with eager's answer alone
    stages.check(cases.timed)
    names = ", ".join(c.family.value for c in cases.families)
    return f"families {names}, relative error at most {stages.comparison.worst:.1e}; {stages.comparison.tests.words}"


def _fast(stages: Stages, cases: RankCases) -> str:
    """A paired time, all timed calls checked; into the findings."""
    from kernellab.verifier.stages.fast import Setup, measured
    from kernellab.verifier.timing.sides import Pace

    pace = Pace(RANK.least, RANK.warm_seconds, RANK.calibration_calls, RANK.sharp)
    setup = Setup(tuple(stages.baselines()), eagers=1, canaries=False, pace=pace, case=cases.timed)
    found = measured(stages, setup)
    findings, ours = stages.context.findings, found.candidate.seconds
    findings.time = stats.timing(stats.calm(ours) if found.busy else ours)
    findings.comparisons = [
        stats.compare(b.name, b.seconds, ours, busy=found.busy, noise=found.noise) for b in found.baselines
    ]
    findings.add(*found.conditions, *([Mark(kind="busy-machine")] if found.busy else []))
    return f"{len(ours)} timed calls, {found.checked} checked{'; ' + found.note if found.note else ''}"
