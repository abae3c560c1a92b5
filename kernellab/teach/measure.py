"""A quick measurement for a lesson: an answer timed against eager, with the bytes it cannot do without."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from kernellab.errors import CourseError
from kernellab.evolve.lab.pool import MOST_SPREAD
from kernellab.records import Ranking
from kernellab.target import Target
from kernellab.task import Task

#: a share of a copy's rate above which the two were not measured alike
MOST_SHARE = 1.05
_IN_CACHES = "no share of a copy's is known: the data stays in the caches, or the copy was timed on a busy machine"


@dataclass(frozen=True)
class Figures:
    """``least_bytes`` are those of inputs and outputs; ``bandwidth`` is that of a copy on this chip, bytes/s."""

    ms: float
    speedup: float | None
    against: str
    least_bytes: float
    bandwidth: float

    @property
    def rate(self) -> float:
        """Bytes of inputs and outputs a second: what a kernel that only moved data would be measured by."""
        return self.least_bytes / (self.ms / 1e3)

    @property
    def of_copy(self) -> float | None:
        """The rate over a copy's; above 1 the data stays in the caches. None where no copy was measured."""
        return self.rate / self.bandwidth if self.bandwidth else None

    @property
    def text(self) -> str:
        baseline = f", {self.against}" if self.against else ""
        share = ""
        if self.of_copy is not None:
            share = f", {100 * self.of_copy:.0f}% of a copy's" if self.of_copy <= MOST_SHARE else f", {_IN_CACHES}"
        return f"{self.ms:.3g} ms{baseline}; {self.rate / 1e9:.3g} GB/s of inputs and outputs{share}"


def figures(task: Task, target: Target, found: Ranking) -> Figures:
    """What a ranking measured.

    Raises:
        CourseError: it found an error, or no time.
    """
    if not found.ranked or found.time is None:
        raise CourseError(f"It was not timed: {found.reason}", "Make it right first: %%kernel_exercise says more.")
    paired, against = found.paired, ""
    if paired is not None and paired.high > MOST_SPREAD * paired.low:
        against = f"no speedup is known: it lies between {paired.low:.2f}x and {paired.high:.2f}x, so measure it again"
        paired = None
    elif paired is not None:
        against = f"about {paired.text}"
    return Figures(
        ms=found.time.median_ms,
        speedup=paired.speedup if paired else None,
        against=against,
        least_bytes=least_bytes(task),
        bandwidth=target.chip.bandwidth or 0.0,
    )


def least_bytes(task: Task) -> float:
    """Bytes of the task's inputs and outputs at its own sizes."""
    import torch

    sizes = task.module().default_sizes()
    shapes = [(a.dtype, a.extents(sizes)) for a in task.args if a.is_tensor]
    shapes += [(o.dtype, o.extents(sizes)) for o in task.outputs]
    return float(sum(prod(shape) * int(getattr(torch, dtype).itemsize) for dtype, shape in shapes))
