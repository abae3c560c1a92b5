"""One verification: the stages in order, each with its evidence; the first failure stops it.

A stage is a function of shared state: the :class:`~kernellab.verifier.stages.context.Context` and, once the candidate
has a worker, the :class:`~kernellab.verifier.stages.candidate.Stages` that hold it. It adds findings to the context,
returns its note, and raises Refused on a failure.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from kernellab.conditions import Mark, NotSealed, StaticFinding
from kernellab.records import Environment, Evidence, Stage, StageResult, StageState, Trust, Verdict
from kernellab.target import Backend
from kernellab.task import Task, load_task
from kernellab.task.audit import feasible
from kernellab.verifier.judge import turns
from kernellab.verifier.protocol.process_memory import READ_BY_FILE
from kernellab.verifier.protocol.rules import COMPILED
from kernellab.verifier.stages.context import Context, Request, threads_of
from kernellab.verifier.stages.refused import Refused
from kernellab.verifier.stages.source_text import lint

if TYPE_CHECKING:
    from kernellab.verifier.judge.pool import Pool
    from kernellab.verifier.stages.candidate import Stages


class Steps:
    """Run the stages of one verification and record the result and duration of each; the first failure ends them."""

    def __init__(self, context: Context, progress: Callable[[StageResult], None]) -> None:
        self.context = context
        context.tell = self._under_way
        self.progress = progress
        self.results: list[StageResult] = []
        self.failure: Refused | None = None
        self.current = Stage.STATIC
        self.began = time.perf_counter()

    def static(self) -> None:
        """Run the stage that reads only the source text."""
        with self.stage(Stage.STATIC) as note:
            note.append(lint(self.context))

    def take(self, stage: Stage, work: Callable[[Stages], str], stages: Stages) -> None:
        """Run one stage unless an earlier one has failed."""
        if self.failure is None:
            if turns.wanted():
                stages.worker.stop()
                with self.context.pool.quiet():
                    # Time used by other processes does not count against the candidate.
                    self.context.wait(turns.give_way())
            with self.stage(stage) as note:
                note.append(work(stages))

    @contextmanager
    def stage(self, stage: Stage) -> Iterator[list[str]]:
        """Run the context's body as the stage; its note is what the body appends to the list."""
        from kernellab.verifier.judge.process import WorkerFailure

        self.current = stage
        self.began = start = time.perf_counter()
        self._under_way("")
        note: list[str] = []
        try:
            yield note
            state = StageState.PASSED
        except Refused as refused:
            self.failure, state = refused, StageState.FAILED
            note = [refused.reason]
        except WorkerFailure as failure:
            ours = failure.role in ("candidate", "ordinary")
            whose, signature = ("kernel", failure.kind) if ours else ("baseline", "baseline")
            reason = f"The {whose}'s worker {failure.message.rstrip('.')}."
            self.failure, state = Refused(reason, Evidence(signature=signature)), StageState.FAILED
            note = [reason]
        self._report(StageResult(name=stage, state=state, seconds=time.perf_counter() - start, note=" ".join(note)))

    @contextmanager
    def compiling(self, stage: Stage) -> Iterator[list[str]]:
        """Run a stage that is mostly compilation, during which other verifications may be timed on a device."""
        with turns.off_device():
            with self.stage(stage) as note:
                yield note
            over = time.monotonic()
        # Time used by other processes does not count against the candidate.
        self.context.wait(time.monotonic() - over)

    def skipped(self, stage: Stage, note: str) -> None:
        """Report a stage as skipped."""
        self._report(StageResult(name=stage, state=StageState.SKIPPED, note=note))

    def all(self) -> list[StageResult]:
        """Return the results of the stages run, followed by those not reached."""
        reported = {r.name for r in self.results}
        missing = [StageResult(name=s, state=StageState.NOT_REACHED) for s in Stage if s not in reported]
        return [*self.results, *missing]

    def _under_way(self, words: str) -> None:
        seconds = time.perf_counter() - self.began
        self.progress(StageResult(name=self.current, state=StageState.RUNNING, seconds=seconds, note=words))

    def _report(self, result: StageResult) -> None:
        self.results.append(result)
        self.progress(result)


@contextmanager
def candidate_of(context: Context) -> Iterator[Stages]:
    """Yield the state shared by the stages after the first: the task, loaded and checked, and the candidate's worker.
    On a CUDA device this process has a context inside, with the precision that the task states.

    Raises TaskError for an invalid task.
    """
    from kernellab.verifier.cases.statics import static_held
    from kernellab.verifier.stages.candidate import Stages

    task = load_task(context.request.task_text, context.request.task_name)
    task = replace(task, fidelity=context.options.precision)
    feasible(task)
    with _device(context, task), static_held(), turns.working(), Stages(context, task) as stages:
        yield stages


@contextmanager
def _device(context: Context, task: Task) -> Iterator[None]:
    if context.request.backend is not Backend.CUDA:
        yield
        return
    from kernellab.verifier.cases import device

    device.start_cuda()
    device.set_precision(task.precision)
    try:
        with device.on("cuda"):
            yield
    finally:
        device.give_back()


class Verification:
    """Run the stages for one request on the workers of ``pool`` and return the verdict."""

    def __init__(self, request: Request, pool: Pool, progress: Callable[[StageResult], None]) -> None:
        self.context = Context.of(request, pool)
        self.steps = Steps(self.context, progress)
        self.load = os.getloadavg()[0]

    def run(self) -> Verdict:
        """Return the verdict. Raises TaskError for an invalid task, TargetError for a missing target."""
        self.steps.static()
        if self._continues_past(Trust.T0):
            with candidate_of(self.context) as stages:
                self._workers(stages)
        return self._verdict()

    def _workers(self, stages: Stages) -> None:
        findings, steps = self.context.findings, self.steps
        with steps.compiling(Stage.BUILD):
            self._baselines(stages, early=True)
            findings.build_seconds = stages.build(self._meanwhile(stages))
        with self._device_alone():
            self._calls(stages)

    @contextmanager
    def _device_alone(self) -> Iterator[None]:
        """Hold the GPU for this verdict inside; processes whose parent gives them turns on a GPU do not wait."""
        if self.context.request.backend is not Backend.CUDA or turns.are_given() or self.steps.failure is not None:
            yield
            return
        from kernellab.verifier.cases import device
        from kernellab.verifier.judge import clock

        self.context.tell("waiting for the device, which another verification may have")
        with ExitStack() as stack:
            # The holder of the device waits, to time, for all other work: a waiter for the device must not count as
            # work.
            with turns.aside():
                clock_turn = stack.enter_context(clock.alone(device.clock_name(self.context.request.backend)))
            # Time used by other processes does not count against the candidate.
            self.context.wait(clock_turn.waited)
            if not clock_turn.had:
                self.context.findings.add(Mark(kind="shared-clock"))
            yield

    def _calls(self, stages: Stages) -> None:
        """Run the stages in which the candidate is called."""
        from kernellab.verifier.seal.sanitizer import sanitized, tools_for
        from kernellab.verifier.seal.stage import sealed
        from kernellab.verifier.stages.correct import correct, smoke
        from kernellab.verifier.stages.fast import fast
        from kernellab.verifier.stages.honest import honest
        from kernellab.verifier.stages.rehearsal import rehearsed
        from kernellab.verifier.stages.robust import robust

        findings, steps = self.context.findings, self.steps
        if steps.failure is None:
            # A JIT compiles at its first call.
            with steps.compiling(Stage.SMOKE) as note, rehearsed(stages, note):
                note.append(smoke(stages))
        self._imports(stages)
        steps.take(Stage.CORRECT, correct, stages)
        if not self._continues_past(Trust.T1):
            return
        self._baselines(stages)
        steps.take(Stage.ROBUST, robust, stages)
        steps.take(Stage.HONEST, honest, stages)
        # A branch for some sizes may load another object.
        self._imports(stages)
        if steps.failure is not None:
            return
        if self.context.interpreted:
            self._mark_interpreted()
            return
        steps.take(Stage.FAST, fast, stages)
        if self._continues_past(Trust.T2):
            steps.take(Stage.FAST, sealed, stages)
        tools = tools_for(self.context.options, self.context.request.backend, findings.sealed)
        if tools:
            steps.take(Stage.ROBUST, lambda of: sanitized(of, tools), stages)
            if steps.failure is None:
                steps.current = Stage.FAST

    def _mark_interpreted(self) -> None:
        """Skip the timing of a kernel that ran in Triton's interpreter, and add what the verdict cannot say of it."""
        findings = self.context.findings
        self.steps.skipped(Stage.FAST, "not timed: Triton's interpreter says nothing about speed")
        findings.add(Mark(kind="interpreted"))
        if any("triton.autotune" in text for text in self.context.source.files.values()):
            findings.add(Mark(kind="one-configuration"))
        if self._continues_past(Trust.T2):
            findings.add(NotSealed(reason="Triton's interpreter makes no binaries"))
        if self.context.options.sanitize:
            findings.add(NotSealed(sanitized=True, reason="compute-sanitizer looks at GPU kernels alone"))

    def _imports(self, stages: Stages) -> None:
        """Add findings for library functions by which the candidate's objects could distinguish a judge's process from
        a user's. CPU only: a device runtime brings its own imports, and an interpreter has no objects."""
        from kernellab.verifier.attribution.imports import beyond_computing
        from kernellab.verifier.static.native_surroundings import asks_for_threads_alone

        context = self.context
        if self.steps.failure is None and context.request.backend is Backend.CPU:
            beyond = beyond_computing(stages.worker)
            for name in beyond.names:
                if name.endswith("getenv") and asks_for_threads_alone("\n".join(context.source.files.values())):
                    continue
                message = f"its object uses {name} of the C library"
                context.findings.add(StaticFinding(rule="surroundings", message=message))
            if beyond.runtime:
                message = "its object holds the C++ runtime, whose calls of the C library cannot be told from its own"
                context.findings.add(StaticFinding(rule="surroundings", message=message))

    def _baselines(self, stages: Stages, early: bool = False) -> None:
        """Begin building the baselines. On a device, ``early`` builds only those that compile, since creating the
        others' contexts takes device time that a refused kernel should not cost."""
        if self.context.options.level.value > Trust.T1.value and not self.context.interpreted:
            few = early and self.context.request.backend is Backend.CUDA
            stages.begin_baselines([b for b in stages.baselines() if not few or b in COMPILED])

    def _meanwhile(self, stages: Stages) -> Iterator[None] | None:
        """Return the work to do while the candidate builds; None on a device, where a refused kernel would waste it."""
        needs_cases = self.context.options.level.value > Trust.T1.value
        return stages.ahead.make() if needs_cases and self.context.request.backend is Backend.CPU else None

    def _continues_past(self, last: Trust) -> bool:
        return self.steps.failure is None and self.context.options.level.value > last.value

    def _verdict(self) -> Verdict:
        findings, steps = self.context.findings, self.steps
        return Verdict(
            passed=steps.failure is None,
            stage=steps.current,
            reason=self._reason() if steps.failure is None else steps.failure.reason,
            trust=self._trust(),
            conditions=tuple(findings.conditions),
            evidence=steps.failure.evidence if steps.failure else None,
            stages=steps.all(),
            time=findings.time,
            comparisons=findings.comparisons,
            sol_ms=findings.sol_ms,
            own_share=findings.own_share,
            hot=findings.hot,
            build_seconds=findings.build_seconds,
            precision=findings.precision,
            replay=findings.replay,
            coverage=findings.coverage,
            environment=self._environment(),
        )

    def _reason(self) -> str:
        options, findings = self.context.options, self.context.findings
        if options.level is Trust.T0:
            return "No static rule is broken; nothing was run."
        if options.level is Trust.T1:
            return "Right on small shapes; a quick look, not timed."
        if self.context.interpreted:
            return f"Right in Triton's interpreter; not timed. {findings.composed}".strip()
        # The comparisons hold the figures, which a later measurement refines.
        return f"Right. {findings.composed}".strip()

    def _trust(self) -> Trust:
        options = self.context.options
        # One judge cannot grant T4: the client queries a second one.
        return min(options.level, Trust.T3 if self.context.findings.sealed else Trust.T2, key=lambda t: t.value)

    def _environment(self) -> Environment:
        context, findings = self.context, self.context.findings
        return Environment(
            chip=context.request.chip,
            backend=context.request.backend.value,
            threads=threads_of(context.options),
            versions={"python": platform.python_version(), **context.pool.versions()},
            sandbox=findings.sandbox + (", memory read through /proc" if READ_BY_FILE else ""),
            load=self.load,
            disturbed=findings.disturbed,
            **findings.roofs,
        )
