"""What a worker does for a candidate: the steps of the cascade that need no other candidate.

A job and its result are plain records, so that a thread here and a worker on another machine do the same.
"""

from __future__ import annotations

import functools
import logging
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

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

#: what the first design is called where another candidate is timed in turn with it
FIRST = "first design"
_BROKE = "A fault of kernellab, which its log has"
#: how features begin that count statements, which are the computation's and not the schedule's
_STATEMENT = "line "


@dataclass(frozen=True)
class Job:
    """A candidate to be evaluated; ``source`` where it is a kernel that somebody wrote, else ``sketch`` is lowered."""

    number: int
    key: str
    text: str
    name: str
    dsl: str
    chip: str | None
    #: another machine, whose judge measures
    target: Target | None = None
    sketch: str = ""
    source: Source | None = None
    allow_library: bool = False
    #: as :attr:`kernellab.verifier.protocol.options.VerifyOptions.rewritten`
    rewritten: bool = False
    #: how near float32 results must come, as :attr:`kernellab.task.Task.fidelity`
    precision: str = ""
    #: as :attr:`kernellab.task.Task.rounded`
    rounded: tuple[str, ...] = ()
    #: measured times, else the cost model's alone
    measured: bool = True
    #: a candidate that the cost model gives more is not built; 0: no limit
    hopeless_ms: float = 0.0
    #: seconds that went before, by step
    spent: tuple[Spent, ...] = ()


@dataclass(frozen=True)
class Ranked:
    """A quick look of the Verifier at a source: a score, or why it has none."""

    score: Score | None
    reason: str = ""
    seconds: float = 0.0
    built: bool = True


class Judge(Protocol):
    """Who measures: the Verifier of this machine, or a worker's."""

    def start(self, target: Target) -> None: ...

    def stop(self) -> None: ...

    def rank(self, task: Task, source: Source, target: Target, allow_library: bool) -> Ranked: ...

    def verify(self, task: Task, source: Source, target: Target, options: VerifyOptions) -> Verdict: ...


class Refused(Exception):
    """A candidate fails a step."""


@dataclass
class Cascade:
    """Runs a job's steps in order; keeps what each took and what is known of the candidate by now."""

    job: Job
    spent: list[Spent] = field(default_factory=list)
    step: Step = Step.CHECK
    known: dict[str, Any] = field(default_factory=dict)

    @contextmanager
    def at(self, step: Step) -> Iterator[None]:
        self.step, began, passed = step, time.perf_counter(), False
        try:
            yield
            passed = True
        finally:
            self.took(step, time.perf_counter() - began, passed)

    def took(self, step: Step, seconds: float, passed: bool) -> None:
        """What somebody else has measured: a judge's seconds, without those that were waited for its turn."""
        self.step = step
        self.spent.append(Spent(step=step, seconds=seconds, passed=passed))

    def run(self, steps: Callable[[], None]) -> Evaluation:
        """What ``steps`` come to. A fault of ours at one candidate is that candidate's end, not the run's.

        Raises:
            TaskError, TargetError: the run itself cannot go on. WorkersLost: the judge cannot be reached.
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
        return Evaluation(
            number=self.job.number, key=self.job.key, passed=passed, step=self.step, reason=reason,
            spent=tuple(self.spent), worker=socket.gethostname(), chip=found(self.job).chip.name,
            **self.known,
        )  # fmt: skip


@dataclass(frozen=True)
class Prepared:
    """A job up to its build: what came of it, and the source that is to be measured; None where nothing is."""

    job: Job
    evaluation: Evaluation
    source: Source | None = None


def evaluate(job: Job, judge: Judge) -> Evaluation:
    """The gate, the cost model, the build and the rank of a job's candidate. Raises TaskError, TargetError."""
    return finish(prepare(job), judge)


def start(begun: Begun, judge: Judge) -> None:
    """Have a run's judge start while its first candidates are made. Raises KernellabError, which they meet as well."""
    judge.start(found(begun))


def prepare(job: Job) -> Prepared:
    """Everything but measuring, which needs no device; where processes take turns, while none of them times.

    Raises:
        TaskError, TargetError.
    """
    with turns.working(designing=True):
        return _prepared(job)


def _prepared(job: Job) -> Prepared:
    task, target = load(job), found(job)
    cascade = Cascade(job, list(job.spent))
    made: list[Source] = []

    def steps() -> None:
        if job.source is None:
            _gate_and_cost(cascade, task, target)
        with cascade.at(Step.BUILD):
            made.append(source_of(job, task, target))
        cascade.known["source"] = code_digest(made[0])

    evaluation = cascade.run(steps)
    return Prepared(job, evaluation, made[0] if evaluation.passed and job.measured else None)


def finish(prepared: Prepared, judge: Judge) -> Evaluation:
    """Rank what was prepared. Raises TaskError, TargetError."""
    job, source = prepared.job, prepared.source
    if source is None:
        return prepared.evaluation
    done = prepared.evaluation
    cascade = Cascade(job, list(done.spent), Step.RANK)
    cascade.known |= {"source": done.source, "modelled_ms": done.modelled_ms, "place": done.place}

    def steps() -> None:
        task, target = load(job), found(job)
        ranked = judge.rank(task, source, target, job.allow_library)
        cascade.took(Step.RANK if ranked.built else Step.BUILD, ranked.seconds, ranked.score is not None)
        if ranked.score is None:
            raise Refused(ranked.reason)
        cascade.known["score"] = ranked.score

    return cascade.run(steps)


def rank(job: Job, judge: Judge) -> Ranked:
    """Measure a candidate that was evaluated. Raises KernellabError."""
    task, target = load(job), found(job)
    return judge.rank(task, source_of(job, task, target), target, job.allow_library)


def verify(job: Job, judge: Judge) -> Verdict:
    """The full verdict on a candidate that was evaluated. Raises KernellabError."""
    task, target = load(job), found(job)
    return judge.verify(task, source_of(job, task, target), target, _options(job))


def compare(pair: tuple[Job, Job], judge: Judge) -> Verdict:
    """The verdict of the first, timed in turn with the second, by the name :data:`FIRST`. Raises KernellabError."""
    job, other = pair
    task, target = load(job), found(job)
    options = _options(job).model_copy(update={"rivals": {FIRST: source_of(other, task, target)}})
    return judge.verify(task, source_of(job, task, target), target, options)


def _options(job: Job) -> VerifyOptions:
    return VerifyOptions(allow_library=job.allow_library, rewritten=job.rewritten, precision=load(job).fidelity)  # type: ignore[arg-type]


def _gate_and_cost(cascade: Cascade, task: Task, target: Target) -> None:
    job = cascade.job
    with cascade.at(Step.GATE):
        looked = gate(job.sketch, task, chip=target.chip)
        if looked.state is GateState.WRONG:
            raise Refused(looked.reason)
    with cascade.at(Step.COST):
        counted = cost_of(job.sketch, task, target)
        cascade.known["modelled_ms"] = modelled = counted.time_ms
        cascade.known["place"] = place_of(job.sketch, task, target).model_copy(update={
            "bound": counted.bound, "launches": len(counted.launches), "programs": counted.parallelism,
        })  # fmt: skip
        if modelled and job.hopeless_ms and modelled > job.hopeless_ms:
            raise Refused(f"The cost model gives it {modelled:.3g} ms; above {job.hopeless_ms:.3g} none is built.")


def source_of(job: Job, task: Task, target: Target) -> Source:
    """The kernel that somebody wrote, or the sketch lowered. Raises SketchError, LoweringError."""
    if job.source is not None:
        return job.source
    program = load_program(job.sketch)
    return lower(program, bind(program, task, {}, target), target)


def cost_of(sketch: str, task: Task, target: Target) -> Cost:
    """What the cost model says at the task's sizes. Raises SketchError where the sketch does not fit the chip."""
    program = load_program(sketch)
    binding = bind(program, task, {}, target)
    sizes = dict(task.module().default_sizes())
    symbols = binding.sizes(lambda at, dim: task.args[at].extents(sizes)[dim])
    found = cost(program, {**binding.fixed, **symbols}, dict(binding.constexpr), target.chip)
    limit = target.chip.on_chip_bytes
    if limit and found.footprint > limit:
        raise Refused(f"It keeps {found.footprint:,} bytes on the chip, which has {limit:,}.")
    return found


def place_of(sketch: str, task: Task, target: Target) -> Place:
    """Where a sketch lies: the cost model's axes, and what its schedule holds. Raises SketchError."""
    found = axes(sketch, task, target)
    schedule = {name: n for name, n in features(sketch).numbers.items() if not name.startswith(_STATEMENT)}
    return Place(
        technique=found.technique.value, footprint=found.on_chip_bytes, stages=found.stages,
        intensity=found.intensity, features=schedule,
    )  # fmt: skip


def job_of(begun: Begun, proposal: Proposal, **more: Any) -> Job:
    """A run's proposal as a job; the rules may call the library where no rule designs an operation."""
    return Job(
        number=proposal.number, key=proposal.key, text=begun.text, name=begun.name, dsl=begun.dsl, chip=begun.chip,
        target=begun.target, sketch=proposal.sketch, source=proposal.source, rewritten=proposal.rewritten,
        allow_library=begun.allow_library or proposal.library, precision=begun.precision, rounded=begun.rounded, **more,
    )  # fmt: skip


def load(asked: Begun | Job) -> Task:
    """The task of a search, or of one of its jobs. Raises TaskError."""
    return _load(asked.text, asked.name, asked.precision, asked.rounded)


@functools.lru_cache(maxsize=8)
def _load(text: str, name: str, precision: str, rounded: tuple[str, ...]) -> Task:
    return replace(load_task(text, name), fidelity=precision, rounded=frozenset(rounded))


def found(asked: Begun | Job) -> Target:
    """What a search's kernels are for: another machine, where its judge is there, else this one. Raises TargetError."""
    return asked.target or _found(asked.dsl, asked.chip)


@functools.lru_cache(maxsize=8)
def _found(dsl: str, chip: str | None) -> Target:
    return detect_target(dsl, chip)


def score_of(ranking: Ranking) -> Score | None:
    """The figures of a ranking as a score: its time, and the speedup over the reference in the same run."""
    against = ranking.paired
    if ranking.time is None:
        return None
    clock = other_clock(ranking.conditions)
    if against is None:
        return Score(time=ranking.time, speedup=0.0, low=0.0, high=0.0, clock=clock)
    return Score(time=ranking.time, speedup=against.speedup, low=against.low, high=against.high, clock=clock)
