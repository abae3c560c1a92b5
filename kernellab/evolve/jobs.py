"""A worker's job for a candidate: the steps of the cascade that need no other candidate.

The steps are cheapest first: gate, cost, build (:func:`prepare`, which needs no device), then rank (:func:`finish`).
The first that a candidate fails ends it. A job and its result are plain records, so that a thread here and a worker on
another machine work alike.
"""

from __future__ import annotations

import functools
import logging
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypedDict

from kernellab.conditions import other_clock
from kernellab.dsls.machine import detect_target
from kernellab.errors import KernellabError, TargetError, TaskError, WorkersLost
from kernellab.evolve.records import Begun, Evaluation, Place, Proposal, Score, Spent, Step
from kernellab.lowering import lower
from kernellab.lowering.embedded_sketch import code_digest
from kernellab.records import GateState, Ranking, Source, Verdict
from kernellab.sketch.check import load_program
from kernellab.sketch.cost import cost
from kernellab.sketch.cost.estimate import Cost
from kernellab.sketch.gate import gate
from kernellab.sketch.program.bind import bind
from kernellab.sketch.rewrite.axes import axes
from kernellab.sketch.rewrite.features import features
from kernellab.target import Target
from kernellab.task import Task, load_task
from kernellab.verifier import VerifyOptions
from kernellab.verifier.judge import turns

log = logging.getLogger("kernellab.evolve")

#: The name of the first design when another candidate is timed in turn with it.
FIRST = "first design"
_BROKE = "A fault of kernellab, which its log has"
#: Prefix of features that count statements, which belong to the computation and not to the schedule.
_STATEMENT = "line "


@dataclass(frozen=True)
class Job:
    """A candidate to evaluate; ``source`` for an external kernel, otherwise ``sketch`` is lowered."""

    number: int
    key: str
    text: str
    name: str
    dsl: str
    chip: str | None
    #: Another machine whose judge measures.
    target: Target | None = None
    sketch: str = ""
    source: Source | None = None
    allow_library: bool = False
    #: See :attr:`kernellab.verifier.protocol.options.VerifyOptions.rewritten`.
    rewritten: bool = False
    #: The allowed error of float32 results; see :attr:`kernellab.task.Task.fidelity`.
    precision: str = ""
    #: See :attr:`kernellab.task.Task.rounded`.
    rounded: tuple[str, ...] = ()
    #: Whether times are measured, not only modelled.
    measured: bool = True
    #: Modelled time above which a candidate is not built; 0 for no limit.
    hopeless_ms: float = 0.0
    #: Seconds already spent, by step.
    spent: tuple[Spent, ...] = ()


@dataclass(frozen=True)
class Ranked:
    """A quick ranking of a source by the Verifier: a score, or why it has none."""

    score: Score | None
    reason: str = ""
    seconds: float = 0.0
    built: bool = True


class Judge(Protocol):
    """Measures candidates: the Verifier of this machine, or a worker's."""

    def start(self, target: Target) -> None: ...

    def stop(self) -> None: ...

    def rank(self, task: Task, source: Source, target: Target, allow_library: bool) -> Ranked: ...

    def verify(self, task: Task, source: Source, target: Target, options: VerifyOptions) -> Verdict: ...


class Refused(Exception):
    """A candidate failed a step."""


class Facts(TypedDict, total=False):
    """What the steps find out about a candidate: fields of its :class:`~kernellab.evolve.records.Evaluation`."""

    modelled_ms: float | None
    place: Place
    source: str
    score: Score


@dataclass
class Cascade:
    """Runs a job's steps in order; records their durations and what they find out."""

    job: Job
    spent: list[Spent] = field(default_factory=list)
    step: Step = Step.CHECK
    facts: Facts = field(default_factory=Facts)

    @contextmanager
    def at(self, step: Step) -> Iterator[None]:
        """Time a step, and record whether it passed."""
        self.step, began, has_passed = step, time.perf_counter(), False
        try:
            yield
            has_passed = True
        finally:
            self.took(step, time.perf_counter() - began, has_passed)

    def took(self, step: Step, seconds: float, passed: bool) -> None:
        """Record a step that was measured elsewhere: a judge's seconds, without those of waiting for its turn."""
        self.step = step
        self.spent.append(Spent(step=step, seconds=seconds, passed=passed))

    def run(self, steps: Callable[[], None]) -> Evaluation:
        """Return the result of ``steps``. An internal fault fails only the candidate, not the run.

        Raises:
            TaskError, TargetError: the run cannot continue. WorkersLost: the judge is unreachable.
        """
        try:
            steps()
        except (TaskError, TargetError, WorkersLost):
            raise
        except Refused as refused:
            return self.evaluation(False, str(refused))
        except KernellabError as error:
            return self.evaluation(False, error.message)
        except Exception as error:
            log.exception("candidate %d broke the step %s", self.job.number, self.step.value)
            return self.evaluation(False, f"{_BROKE}: {type(error).__name__}: {error}")
        return self.evaluation(True)

    def evaluation(self, passed: bool, reason: str = "") -> Evaluation:
        """Return the job's evaluation at the current step."""
        return Evaluation(
            number=self.job.number, key=self.job.key, passed=passed, step=self.step, reason=reason,
            spent=tuple(self.spent), worker=socket.gethostname(), chip=target_of(self.job).chip.name,
            **self.facts,
        )  # fmt: skip


@dataclass(frozen=True)
class Prepared:
    """A job up to its build: its evaluation so far, and the source to measure; None if there is none."""

    job: Job
    evaluation: Evaluation
    source: Source | None = None


def evaluate(job: Job, judge: Judge) -> Evaluation:
    """Gate, cost, build and rank a job's candidate. Raises TaskError, TargetError."""
    return finish(prepare(job), judge)


def start(begun: Begun, judge: Judge) -> None:
    """Start a run's judge while its first candidates are made. Raises KernellabError, as they would."""
    judge.start(target_of(begun))


def prepare(job: Job) -> Prepared:
    """Run everything except the measurement, which needs no device; with shared turns, while none is timing.

    Raises:
        TaskError, TargetError.
    """
    with turns.working(designing=True):
        return _prepared(job)


def _prepared(job: Job) -> Prepared:
    task, target = task_of(job), target_of(job)
    cascade = Cascade(job, list(job.spent))
    sources: list[Source] = []

    def steps() -> None:
        if job.source is None:
            _gate_and_cost(cascade, task, target)
        with cascade.at(Step.BUILD):
            sources.append(source_of(job, task, target))
        cascade.facts["source"] = code_digest(sources[0])

    evaluation = cascade.run(steps)
    return Prepared(job, evaluation, sources[0] if evaluation.passed and job.measured else None)


def finish(prepared: Prepared, judge: Judge) -> Evaluation:
    """Rank a prepared candidate. Raises TaskError, TargetError."""
    job, source = prepared.job, prepared.source
    if source is None:
        return prepared.evaluation
    earlier = prepared.evaluation
    facts = Facts(source=earlier.source, modelled_ms=earlier.modelled_ms, place=earlier.place)
    cascade = Cascade(job, list(earlier.spent), Step.RANK, facts)

    def steps() -> None:
        task, target = task_of(job), target_of(job)
        ranked = judge.rank(task, source, target, job.allow_library)
        cascade.took(Step.RANK if ranked.built else Step.BUILD, ranked.seconds, ranked.score is not None)
        if ranked.score is None:
            raise Refused(ranked.reason)
        cascade.facts["score"] = ranked.score

    return cascade.run(steps)


def rank(job: Job, judge: Judge) -> Ranked:
    """Measure an evaluated candidate. Raises KernellabError."""
    task, target = task_of(job), target_of(job)
    return judge.rank(task, source_of(job, task, target), target, job.allow_library)


def verify(job: Job, judge: Judge) -> Verdict:
    """Return the full verdict on an evaluated candidate. Raises KernellabError."""
    task, target = task_of(job), target_of(job)
    return judge.verify(task, source_of(job, task, target), target, _options(job))


def compare(pair: tuple[Job, Job], judge: Judge) -> Verdict:
    """Return the verdict of the first, timed in turn with the second, named :data:`FIRST`. Raises KernellabError."""
    job, other = pair
    task, target = task_of(job), target_of(job)
    options = _options(job).model_copy(update={"rivals": {FIRST: source_of(other, task, target)}})
    return judge.verify(task, source_of(job, task, target), target, options)


def _options(job: Job) -> VerifyOptions:
    return VerifyOptions(allow_library=job.allow_library, rewritten=job.rewritten, precision=task_of(job).fidelity)  # type: ignore[arg-type]


def _gate_and_cost(cascade: Cascade, task: Task, target: Target) -> None:
    job = cascade.job
    with cascade.at(Step.GATE):
        result = gate(job.sketch, task, chip=target.chip)
        if result.state is GateState.WRONG:
            raise Refused(result.reason)
    with cascade.at(Step.COST):
        estimate = cost_of(job.sketch, task, target)
        cascade.facts["modelled_ms"] = modelled = estimate.time_ms
        cascade.facts["place"] = place_of(job.sketch, task, target).model_copy(update={
            "bound": estimate.bound, "launches": len(estimate.launches), "programs": estimate.parallelism,
        })  # fmt: skip
        if modelled and job.hopeless_ms and modelled > job.hopeless_ms:
            raise Refused(f"The cost model gives it {modelled:.3g} ms; above {job.hopeless_ms:.3g} none is built.")


def source_of(job: Job, task: Task, target: Target) -> Source:
    """Return the external kernel, or the lowered sketch. Raises SketchError, LoweringError."""
    if job.source is not None:
        return job.source
    program = load_program(job.sketch)
    return lower(program, bind(program, task, {}, target), target)


def cost_of(sketch: str, task: Task, target: Target) -> Cost:
    """Return the cost at the task's sizes. Raises Refused if the sketch does not fit on the chip; SketchError."""
    program = load_program(sketch)
    binding = bind(program, task, {}, target)
    sizes = dict(task.module().default_sizes())
    symbols = binding.sizes(lambda at, dim: task.args[at].extents(sizes)[dim])
    estimate = cost(program, {**binding.fixed, **symbols}, dict(binding.constexpr), target.chip)
    limit = target.chip.on_chip_bytes
    if limit and estimate.footprint > limit:
        raise Refused(f"It keeps {estimate.footprint:,} bytes on the chip, which has {limit:,}.")
    return estimate


def place_of(sketch: str, task: Task, target: Target) -> Place:
    """A sketch's position: the cost model's axes, and its schedule's features. Raises SketchError."""
    position = axes(sketch, task, target)
    schedule = {name: n for name, n in features(sketch).numbers.items() if not name.startswith(_STATEMENT)}
    return Place(
        technique=position.technique.value, footprint=position.on_chip_bytes, stages=position.stages,
        intensity=position.intensity, features=schedule,
    )  # fmt: skip


def job_of(begun: Begun, proposal: Proposal, **more: Any) -> Job:
    """Return a run's proposal as a job; the rules may call the library for operations without a rule."""
    return Job(
        number=proposal.number, key=proposal.key, text=begun.text, name=begun.name, dsl=begun.dsl, chip=begun.chip,
        target=begun.target, sketch=proposal.sketch, source=proposal.source, rewritten=proposal.rewritten,
        allow_library=begun.allow_library or proposal.library, precision=begun.precision, rounded=begun.rounded, **more,
    )  # fmt: skip


def task_of(origin: Begun | Job) -> Task:
    """The task of a search, or of one of its jobs. Raises TaskError."""
    return _task(origin.text, origin.name, origin.precision, origin.rounded)


@functools.lru_cache(maxsize=8)
def _task(text: str, name: str, precision: str, rounded: tuple[str, ...]) -> Task:
    return replace(load_task(text, name), fidelity=precision, rounded=frozenset(rounded))


def target_of(origin: Begun | Job) -> Target:
    """The target of a search: the machine of its judge, otherwise this one. Raises TargetError."""
    return origin.target or _target(origin.dsl, origin.chip)


@functools.lru_cache(maxsize=8)
def _target(dsl: str, chip: str | None) -> Target:
    return detect_target(dsl, chip)


def score_of(ranking: Ranking) -> Score | None:
    """Return a ranking as a score: its time, and the speedup over the reference in the same run."""
    paired = ranking.paired
    if ranking.time is None:
        return None
    clock = other_clock(ranking.conditions)
    if paired is None:
        return Score(time=ranking.time, speedup=0.0, low=0.0, high=0.0, clock=clock)
    return Score(time=ranking.time, speedup=paired.speedup, low=paired.low, high=paired.high, clock=clock)
