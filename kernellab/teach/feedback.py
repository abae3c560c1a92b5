"""What a right answer gets next to its points: its time, eager's, the bound, a reference's, and what to try next."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kernellab.dsls.machine import usable_cores
from kernellab.errors import KernellabError
from kernellab.records import Ranking, Source
from kernellab.target import Backend, Target
from kernellab.task import Task
from kernellab.teach.challenge import opponent
from kernellab.teach.exercise import Exercise, solution
from kernellab.teach.goals import Facts
from kernellab.teach.judge import source_of
from kernellab.teach.measure import MOST_SHARE, Figures, figures

Rank = Callable[[Task, Source, Target], Ranking]

#: share of a copy's rate from which little is left to gain
_NEAR_COPY = 0.8
#: ratios that count as a difference: of two times, and of bytes
_SLOWER, _TRAFFIC = 1.3, 1.1


@dataclass(frozen=True)
class Timed:
    """A right answer's figures next to a reference's."""

    own: Figures
    #: whose the other kernel is, in words, and its time; "" and None where there is none
    reference: str = ""
    reference_ms: float | None = None
    #: what the answer does, where it is a sketch
    facts: Facts | None = None
    #: iterations that run at once on this machine
    cores: int = 1
    exercise: str = ""
    #: traffic that the exercise asks for, at most
    traffic: float = 1.0

    @property
    def text(self) -> str:
        other = f"; {self.reference}: {self.reference_ms:.3g} ms" if self.reference_ms is not None else ""
        share = self.own.of_copy
        known = share is not None and share <= MOST_SHARE
        bound = (
            f"; its bytes at a copy's rate: {1e3 * self.own.least_bytes / self.own.bandwidth:.3g} ms" if known else ""
        )
        return f"{self.own.text}{other}{bound}"

    @property
    def next_step(self) -> str:
        """What to try next, by the figure that is farthest from what can be reached."""
        facts, share = self.facts, self.own.of_copy
        if facts is not None and facts.parallel < self.cores:
            return f"Only {facts.parallel} of {self.cores} cores work: share out another dimension."
        if facts is not None and facts.traffic > _TRAFFIC * self.traffic:
            fewer = "fuse its launches" if facts.launches > 1 else "larger tiles are used more often"
            return f"Its loads and stores name {facts.traffic:.2f} times the bytes of inputs and outputs: {fewer}."
        if self.reference_ms is not None and self.own.ms > _SLOWER * self.reference_ms:
            return (
                f"{self.reference} is {self.own.ms / self.reference_ms:.1f} times as fast: see your loop by "
                "%%kernel_watch --compiled; where the sketch has a constant for its tiles, try others."
            )
        if share is not None and _NEAR_COPY <= share <= MOST_SHARE:
            return (
                "It moves data nearly as fast as a copy: what is left is to fuse it with the operator before or after."
            )
        return (
            f"`%%kernel_exercise {self.exercise} --pass` at the head of the cell asks for the whole verdict; or try "
            "the same in Triton, and compare with the code below."
        )


def timed(exercise: Exercise, source: Source, task: Task, target: Target, rank: Rank, facts: Facts | None) -> Timed:
    """A right answer to the exercise, and the reference answer or else the rules' kernel, each timed in pairs
    with eager.

    Raises:
        CourseError, TargetError, VerifierError: it cannot be timed on this machine.
    """
    own = figures(task, target, rank(task, source, target))
    whose, other = _reference(exercise.id, task, target)
    times = None
    if other is not None:
        key = (task.hash, other.hash)
        if key not in _times:
            found = rank(task, other, target)
            _times[key] = found.time.median_ms if found.ranked and found.time is not None else None
        times = _times[key]
    cores = usable_cores() if target.backend is Backend.CPU else 1
    return Timed(own, whose, times, facts, cores, exercise.id, max(1.0, exercise.goals.traffic or 1.0))


#: (task, source) -> the reference's time, measured once
_times: dict[tuple[str, str], float | None] = {}


def _reference(name: str, task: Task, target: Target) -> tuple[str, Source | None]:
    """The reference answer where this installation has it, else what the rules make of the task."""
    text = solution(name)
    try:
        if text is not None:
            return "the reference answer", source_of(text, task, target.dsl)
        return "the rules' kernel", opponent(task, target).source
    except KernellabError:
        return "", None
