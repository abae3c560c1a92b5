"""One ranking: static analysis, build, the smallest shape, three families, and an approximate paired time.

This is what a search needs of each candidate, in about a second after the build. It finds plain errors; only a
verification finds what a kernel does to deceive, and only that gives a verdict.
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
        """Run the ranking. Raises TaskError for a bad task, TargetError if nothing can be timed."""
        if self.context.interpreted:
            raise TargetError("Triton's interpreter cannot be timed.", "Rank on a GPU, or kernels in C++.")
        self.steps.static()
        built = time.perf_counter()
        if self.steps.failure is None:
            with candidate_of(self.context) as stages:
                built = self._workers(stages)
        return self._ranking(time.perf_counter() - built)

    def _workers(self, stages: Stages) -> float:
        """Run the stages. Returns when the build ended; on a device, including the first calls, where a JIT
        compiles."""
        from kernellab.verifier.ranking.cases import RankCases

        steps, on_cpu = self.steps, self.context.request.backend is Backend.CPU
        # a GPU draws quickly, and its memory is shared with others
        cases = stages.context.pool.recent.of(stages.task, RankCases) if on_cpu else RankCases(stages.task)
        with steps.compiling(Stage.BUILD):
            stages.begin_baselines(stages.baselines(), eagers=1)
            # on a device a step of these, drawn at full size, may take far longer than the build during which it runs
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
        findings, steps, failure = self.context.findings, self.steps, self.steps.failure
        return Ranking(
            ranked=failure is None,
            stage=steps.current,
            reason=failure.reason if failure else "No error found by a quick check; this is no verdict.",
            conditions=tuple(findings.conditions),
            evidence=failure.evidence if failure else None,
            stages=steps.all(),
            time=findings.time,
            paired=next(iter(findings.comparisons), None),
            build_seconds=findings.build_seconds,
            seconds=seconds,
        )


def _smoke(stages: Stages, cases: RankCases) -> str:
    stages.outputs(cases.smoke, "smoke", stages.context.left(DEADLINES.smoke))
    if stages.context.request.backend is Backend.CUDA:
        # a JIT compiles at the first call of each kind
        for case in (*cases.families, *cases.powers, cases.timed):
            stages.outputs(case, "smoke", stages.context.left(DEADLINES.smoke))
    stages.check(cases.smoke)
    return cases.smoke.words


def _correct(stages: Stages, cases: RankCases) -> str:
    """Check the families in poisoned and guarded memory: inputs unchanged, earlier outputs not overwritten, none
    written late; sizes at the Dims' ends, other layouts and other scalars."""
    from kernellab.verifier.boundary_checks.drawn import drawn
    from kernellab.verifier.boundary_checks.fences import reads_inside
    from kernellab.verifier.boundary_checks.memory import untouched
    from kernellab.verifier.stages.robustness.kept_outputs import late, overwritten, ring
    from kernellab.verifier.stages.robustness.properties import cheapest

    first, *other_cases = cases.families
    stages.check(first)
    untouched(stages, first)
    call = stages.sure_call(first, "correct")
    first_outputs = [stages.worker.read(o) for o in call.outputs]
    for i, case in enumerate((*other_cases, *cases.powers)):
        stages.check(case)
        if not i:
            # the worker holds the outputs of its last two calls
            overwritten(stages, first, call, first_outputs)
    if stages.context.request.backend is Backend.CPU:
        reads_inside(stages, first)
        late(stages, first)
        for case in cases.ends:
            stages.check(case)
        if cases.small is not None:
            ring(stages, cases.small, cases.families[1])
            cheapest(stages, cases.small)
    drawn(stages, cases.drawn())
    # memory around timed calls is not poisoned or guarded, and most of them are compared only with eager's answer
    stages.check(cases.timed)
    names = ", ".join(c.family.value for c in cases.families)
    return f"families {names}, relative error at most {stages.comparison.worst:.1e}; {stages.comparison.tests.words}"


def _fast(stages: Stages, cases: RankCases) -> str:
    """Measure a paired time, with all timed calls checked, and store it in the findings."""
    from kernellab.verifier.stages.fast import Setup, measured
    from kernellab.verifier.timing.sides import Pace

    pace = Pace(RANK.min_pairs, RANK.warm_seconds, RANK.calibration_calls, RANK.sharp_share)
    setup = Setup(tuple(stages.baselines()), eagers=1, canaries=False, pace=pace, case=cases.timed)
    result = measured(stages, setup)
    findings, ours = stages.context.findings, result.candidate.seconds
    findings.time = stats.timing(stats.calm(ours) if result.busy else ours)
    findings.comparisons = [
        stats.compare(b.name, b.seconds, ours, busy=result.busy, noise=result.noise) for b in result.baselines
    ]
    findings.add(*result.conditions, *([Mark(kind="busy-machine")] if result.busy else []))
    return f"{len(ours)} timed calls, {result.checked} checked{'; ' + result.note if result.note else ''}"
