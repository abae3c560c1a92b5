"""One point's time: lowered, built, tried on a small case and timed in a worker of the Verifier, never in this process.

A ranking is no verdict: what wins is verified in full before anything is said of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from kernellab.errors import KernellabError, TaskError
from kernellab.records import Source, Timing
from kernellab.tuning.space import Point, Value

if TYPE_CHECKING:
    from kernellab.records import Ranking
    from kernellab.target import Target
    from kernellab.task import Task
    from kernellab.verifier import RankOptions


@dataclass(frozen=True)
class Measured:
    """A point and its time; ``reason`` says why it has none."""

    point: Point
    time: Timing | None = None
    reason: str = ""


class Judge(Protocol):
    def rank(self, task: Task, source: Source, target: Target, *, options: RankOptions | None = None) -> Ranking: ...


Measure = Callable[[Point, float], Measured]


@dataclass
class WorkerMeasure:
    """Measures through ``judge``. A call takes a point and the seconds that its timed calls may take."""

    judge: Judge
    task: Task
    target: Target
    fixed: dict[str, Value]
    #: points that compose with the framework's library are measured too
    allow_library: bool = False

    def __call__(self, point: Point, budget: float) -> Measured:
        """Raises TaskError: the task itself cannot be used."""
        from kernellab.verifier import RankOptions

        try:
            source = self.source(point)
            options = RankOptions(
                paired=False, budget=budget, allow_library=self.allow_library,
                precision=self.task.fidelity,  # type: ignore[arg-type]
            )  # fmt: skip
            ranking = self.judge.rank(self.task, source, self.target, options=options)
        except TaskError:
            raise
        except KernellabError as error:
            return Measured(point, reason=error.message)
        if not ranking.ranked or ranking.time is None:
            return Measured(point, reason=ranking.reason)
        return Measured(point, ranking.time)

    def source(self, point: Point) -> Source:
        """Raises SketchError, LoweringError."""
        from kernellab.lowering import lower
        from kernellab.sketch.check import load_program
        from kernellab.sketch.program.bind import bind

        program = load_program(point.sketch)
        return lower(program, bind(program, self.task, {**dict(point.values), **self.fixed}, self.target), self.target)
