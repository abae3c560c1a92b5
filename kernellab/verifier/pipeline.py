"""One verification: the stages in order, each with its evidence; the first failure stops."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kernellab.dsls import get_adapter
from kernellab.dsls.base import Finding
from kernellab.records import (
    CompilerLine,
    Environment,
    Evidence,
    Source,
    Stage,
    StageResult,
    StageState,
    Trust,
    Verdict,
)
from kernellab.target import Backend
from kernellab.task import Task, load_task
from kernellab.verifier import static, turns
from kernellab.verifier.memory import READ_BY_FILE
from kernellab.verifier.options import VerifyOptions
from kernellab.verifier.rules import COMPILED

if TYPE_CHECKING:
    from kernellab.verifier.pool import Pool
    from kernellab.verifier.stages import Stages

_ORDER = tuple(Stage)
#: findings that a caller who allows the framework's operators waives
_OWN_KERNEL = ("no-kernel", "no-launch", "library-call")


class Refused(Exception):
    """A stage failed: reason in one sentence, evidence."""

    def __init__(self, reason: str, found: Evidence | None = None) -> None:
        super().__init__(reason)
        self.reason, self.evidence = reason, found


@dataclass(frozen=True)
class Request:
    """What the judge was asked: texts and words only."""

    task_text: str
    task_name: str
    source: Source
    backend: Backend
    chip: str
    options: VerifyOptions


@dataclass
class State:
    """What the stages hand to each other."""

    flags: list[str] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    update: dict[str, Any] = field(default_factory=dict)
    sandbox: str = ""
    #: a sentence on the library's part, where it has one and may have it
    composed: str = ""
    #: share of the timed calls that something else on the machine disturbed
    disturbed: float = 0.0
    #: measured here: bytes/s of a copy, FLOP/s of a float32 product
    roofs: tuple[float, float] = (0.0, 0.0)
    #: has a replay without its host code shown the same?
    sealed: bool = False


def threads_of(options: VerifyOptions) -> int:
    return options.threads or len(os.sched_getaffinity(0))


def baselines_of(options: VerifyOptions, task: Task) -> list[str]:
    """The baselines asked for; torch.compile has nothing to say of a NumPy reference."""
    return [b for b in options.baselines if not (b in COMPILED and task.framework == "numpy")]


def numbered(baselines: Sequence[str]) -> list[tuple[str, int]]:
    """The workers that baselines need: eager has two, whose difference is what two workers of one code differ by."""
    return [(name, number) for name in baselines for number in range(2 if name == "eager" else 1)]


class Verification:
    """Runs the stages for one request on the workers of ``pool`` and makes the verdict."""

    def __init__(self, request: Request, pool: Pool, progress: Callable[[StageResult], None]) -> None:
        self.request = request
        self.options = request.options
        self.source = request.source
        self.pool = pool
        self.progress = progress
        self.adapter = get_adapter(request.source.dsl)
        self.interpreted = request.backend is Backend.INTERPRETER
        self.state = State()
        self.results: list[StageResult] = []
        self.end = time.monotonic() + self.options.deadline
        self.failure: Refused | None = None
        self.current = Stage.STATIC
        self.load = os.getloadavg()[0]

    def run(self) -> Verdict:
        """The verdict. Raises TaskError for a bad task, TargetError for a target that is not there."""
        with self._stage(Stage.STATIC):
            self._static()
        if self._goes_on(Trust.T0):
            from kernellab.verifier.cases import static_held
            from kernellab.verifier.stages import Stages

            task = load_task(self.request.task_text, self.request.task_name)
            with self._device(task), static_held(), turns.working(), Stages(self, task) as stages:
                self._workers(stages)
        return self._verdict()

    def left(self, most: float) -> float:
        """Seconds for a step that may take ``most``, within the whole deadline."""
        left = self.end - time.monotonic()
        if left <= 0:
            raise Refused(f"The whole verification took longer than its deadline of {self.options.deadline:g} s.",
                          Evidence(signature="hang"))  # fmt: skip
        return min(most, left)

    @contextmanager
    def _device(self, task: Task) -> Iterator[None]:
        """On a CUDA device: this process's own context, in the precision that the task states."""
        if self.request.backend is not Backend.CUDA:
            yield
            return
        from kernellab.verifier import device

        device.start_cuda()
        device.set_precision(task.precision)
        try:
            with device.on("cuda"):
                yield
        finally:
            device.give_back()

    def _workers(self, stages: Stages) -> None:
        from kernellab.verifier.correct import correct, smoke
        from kernellab.verifier.fast import fast
        from kernellab.verifier.honest import honest
        from kernellab.verifier.robust import robust
        from kernellab.verifier.seal.stage import sealed

        with self._stage(Stage.BUILD):
            self.state.update["build_seconds"] = stages.build()
        self._step(Stage.SMOKE, smoke, stages)
        if self.options.ranking:
            self.state.labels.append("ranking, not verified")
            self._step(Stage.FAST, fast, stages)
            return
        self._step(Stage.CORRECT, correct, stages)
        if not self._goes_on(Trust.T1):
            return
        stages.begin_baselines()
        self._step(Stage.ROBUST, robust, stages)
        self._step(Stage.HONEST, honest, stages)
        if self.failure is not None:
            return
        if self.interpreted:
            self._skipped(Stage.FAST, "not timed: Triton's interpreter says nothing of speed")
            self.state.labels.append("interpreted")
            if self._goes_on(Trust.T2):
                self.state.labels.append("not sealed: Triton's interpreter makes no binaries")
            return
        self._step(Stage.FAST, fast, stages)
        if self._goes_on(Trust.T2):
            self._step(Stage.FAST, sealed, stages)

    def _step(self, stage: Stage, work: Callable[[Stages], str], stages: Stages) -> None:
        """One stage, where none before it has failed."""
        if self.failure is None:
            if turns.wanted():
                stages.worker.stop()
                with self.pool.quiet():
                    # the time of others is not the candidate's
                    self.end += turns.give_way()
            with self._stage(stage) as note:
                note.append(work(stages))

    def _goes_on(self, last: Trust) -> bool:
        return self.failure is None and self.options.level.value > last.value

    def _static(self) -> None:
        result = static.check(self.source)
        if result.errors:
            line = result.errors[0]
            raise Refused(f"{line.file}, line {line.line}: {line.message}.",
                          Evidence(signature="syntax", compiler=list(result.errors)))  # fmt: skip
        findings = [*result.findings, *self.adapter.static(self.source)]
        fatal = [f for f in findings if f.fatal and not self._waived(f)]
        if fatal:
            first = fatal[0]
            at = f"{first.file}, line {first.line}: " if first.line else ""
            lines = [CompilerLine(file=f.file, line=f.line, message=f"{f.rule}: {f.message}") for f in fatal]
            self.state.flags += result.flags
            allow = " --allow-library takes a kernel that leans on the framework." if first.rule in _OWN_KERNEL else ""
            raise Refused(f"{at}{_sentence(first.message)}{allow}", Evidence(signature=first.rule, compiler=lines))
        self.state.flags += [
            f"{f.rule}: {f.message.rstrip('.')}" + (f" ({f.file}:{f.line})" if f.line else "") for f in findings
        ]

    def _waived(self, finding: Finding) -> bool:
        is_model = any("class ModelNew" in text for text in self.source.files.values())
        own = is_model and finding.rule != "library-call"
        return finding.rule in _OWN_KERNEL and (self.options.allow_library or own)

    @contextmanager
    def _stage(self, stage: Stage) -> Iterator[list[str]]:
        from kernellab.verifier.process import WorkerFailure

        self.current = stage
        start = time.perf_counter()
        note: list[str] = []
        try:
            yield note
            state = StageState.PASSED
        except Refused as refused:
            self.failure, state = refused, StageState.FAILED
            note = [refused.reason]
        except WorkerFailure as failure:
            reason = f"The baseline's worker {failure.message}."
            self.failure, state = Refused(reason, Evidence(signature="baseline")), StageState.FAILED
            note = [reason]
        self._report(StageResult(name=stage, state=state, seconds=time.perf_counter() - start, note=" ".join(note)))

    def _skipped(self, stage: Stage, note: str) -> None:
        self._report(StageResult(name=stage, state=StageState.SKIPPED, note=note))

    def _report(self, result: StageResult) -> None:
        self.results.append(result)
        self.progress(result)

    def _verdict(self) -> Verdict:
        seen = {r.name for r in self.results}
        missing = [StageResult(name=s, state=StageState.NOT_REACHED) for s in _ORDER if s not in seen]
        passed = self.failure is None
        return Verdict(
            passed=passed,
            stage=self.current,
            reason=self._reason() if self.failure is None else self.failure.reason,
            trust=self._trust(),
            label=", ".join(dict.fromkeys(self.state.labels)),
            flags=self.state.flags,
            evidence=self.failure.evidence if self.failure else None,
            stages=[*self.results, *missing],
            environment=self._environment(),
            **self.state.update,
        )

    def _reason(self) -> str:
        if self.options.level is Trust.T0:
            return "No static rule is broken; nothing was run."
        if self.options.level is Trust.T1:
            return "Right on small shapes; a quick look, not timed."
        if self.interpreted:
            return f"Right in Triton's interpreter; not timed. {self.state.composed}".strip()
        comparison = next(iter(self.state.update.get("comparisons", [])), None)
        said = "Right."
        if comparison is not None:
            tie = "" if comparison.distinguishable else " (not distinguishable)"
            said = f"Right, {comparison.speedup:.2f}x {comparison.baseline}{tie}."
        return f"{said} {self.state.composed}".strip()

    def _trust(self) -> Trust:
        if self.options.ranking:
            return Trust.T1
        # T4 is not one judge's to give: the client asks a second one
        return min(self.options.level, Trust.T3 if self.state.sealed else Trust.T2, key=lambda t: t.value)

    def _environment(self) -> Environment:
        versions = {"python": platform.python_version(), **self.pool.versions()}
        return Environment(
            chip=self.request.chip,
            backend=self.request.backend.value,
            threads=threads_of(self.options),
            versions=versions,
            sandbox=self.state.sandbox + (", memory read through /proc" if READ_BY_FILE else ""),
            load=self.load,
            disturbed=self.state.disturbed,
            bandwidth=self.state.roofs[0],
            flops=self.state.roofs[1],
        )


def _sentence(text: str) -> str:
    text = text.rstrip(".")
    return f"{text[:1].upper()}{text[1:]}."
