"""The speed of one kernel over the declared range of a Dim, compared with eager."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from kernellab.errors import SessionError
from kernellab.export.exportable import Choice
from kernellab.records import Comparison, Ranking, Source
from kernellab.session.turn.context import Bench
from kernellab.session.turn.verifying import rank
from kernellab.task import Dim, Task, load_task

#: Number of sizes that are timed, including the ends of the range and the task's own.
_POINTS = 7
#: Size of a call's tensors in bytes, at 8 per element, above which a size is not timed.
_MOST_BYTES = 1 << 30


@dataclass(frozen=True)
class SweepPoint:
    """One size of the Dim and its measurement; a ranking without a time gives the reason in its ``reason``."""

    size: int
    ranking: Ranking

    @property
    def text(self) -> str:
        ranking = self.ranking
        if not ranking.ranked:
            return f"{self.size:>10}  {ranking.stage.value}: {ranking.reason}"
        return f"{self.size:>10}  {', '.join(filter(None, (ranking.text, self.advice)))}"

    @property
    def advice(self) -> str:
        """``keep eager`` or ``not recommended`` at this size; "" for others."""
        return self.ranking.paired.standing.short_advice if self.ranking.paired is not None else ""


@dataclass(frozen=True)
class Sweep:
    """The points of one Dim, with the others at their own sizes; ``left_out``: sizes that need too much memory."""

    dim: str
    points: tuple[SweepPoint, ...]
    left_out: tuple[int, ...] = ()

    @property
    def worst(self) -> SweepPoint | None:
        """The point with the lowest speedup over eager; None if none was timed in pairs with it."""
        timed = [p for p in self.points if p.ranking.ranked and p.ranking.paired is not None]
        return min(timed, key=lambda p: p.ranking.paired.speedup if p.ranking.paired else 0.0, default=None)

    @property
    def wrong(self) -> tuple[SweepPoint, ...]:
        """The points at which an error occurred, or nothing was timed."""
        return tuple(p for p in self.points if not p.ranking.ranked)

    def __str__(self) -> str:
        lines = [f"{self.dim:>10}  time, speed next to eager with its 95 % interval", *(p.text for p in self.points)]
        if self.worst is not None and self.worst.ranking.paired is not None:
            lines.append(f"worst: {self.dim} = {self.worst.size}, {self.worst.ranking.paired.text}")
        if self.wrong:
            lines.append(f"not timed: {self.dim} = {', '.join(str(p.size) for p in self.wrong)}")
        if self.left_out:
            lines.append(f"left out for memory: {self.dim} = {', '.join(map(str, self.left_out))}")
        return "\n".join(lines)


def chosen(sweeps: Sequence[Sweep]) -> Choice:
    """The choice that follows from the sweeps of several kernels over one Dim. From one measured size to the next, the
    kernel changes only where another one is certainly faster; the change is halfway, as a ratio.

    Raises:
        SessionError: no kernel was timed at any size.
    """
    timed_by_size: dict[int, dict[int, Comparison]] = {}
    for kernel, swept in enumerate(sweeps):
        for point in swept.points:
            if point.ranking.ranked and point.ranking.paired is not None:
                timed_by_size.setdefault(point.size, {})[kernel] = point.ranking.paired
    if not timed_by_size:
        raise SessionError("No kernel was timed at any size.", "See why with kernellab compare SESSION --over DIM.")
    # from which size on which kernel is called; None: eager
    starts: list[tuple[int, int | None]] = []
    size_before = 0
    for size, timed in sorted(timed_by_size.items()):
        kernel_before = starts[-1][1] if starts else None
        picked = _picked(timed, kernel_before)
        if not starts:
            starts.append((0, picked))
        elif picked != kernel_before:
            halfway = round((size_before * size) ** 0.5)
            starts.append((max(size_before + 1, halfway), picked))
        size_before = size
    return Choice(sweeps[0].dim, tuple(starts))


def _picked(timed: Mapping[int, Comparison], kernel_before: int | None) -> int | None:
    """The kernel to call at one size, by its number: the one before unless another is certainly faster; None where
    eager is to be kept."""
    fastest = max(timed, key=lambda kernel: timed[kernel].speedup)
    before = timed.get(kernel_before) if kernel_before is not None else None
    if before is not None and not before.standing.keeps_baseline and timed[fastest].low <= before.high:
        return kernel_before
    return None if timed[fastest].standing.keeps_baseline else fastest


def sizes_of(tasks: Sequence[Task], name: str) -> list[int]:
    """The sizes at which kernels for these tasks are compared: the ends of each one's range and some between. Raises
    SessionError if a task has no such Dim."""
    return sorted({size for t in tasks for size in _sizes(_dim(t, name), t.module().default_sizes()[name])})


def sweep(
    bench: Bench, source: Source, name: str, told: Callable[[SweepPoint], None] = lambda _: None,
    sizes: Sequence[int] = (),
) -> Sweep:  # fmt: skip
    """Rank ``source`` at sizes of the Dim ``name`` from the least to the largest declared size (or at those of
    ``sizes`` in its range). Blocking: a second or more per size. ``told`` receives each point when it is measured.

    Raises:
        SessionError: the task has no such Dim.
        TargetError, VerifierError: the source cannot be ranked.
    """
    task = bench.task()
    dim = _dim(task, name)
    _has_sizes(task)
    points, left_out = [], []
    for size in sizes or sizes_of([task], name):
        if not dim.min <= size <= dim.max:
            continue
        if _bytes(task, {name: size}) > _MOST_BYTES:
            left_out.append(size)
            continue
        points.append(SweepPoint(size, rank(bench, source, at_sizes(task, {name: size}))))
        told(points[-1])
    return Sweep(name, tuple(points), tuple(left_out))


def at_sizes(task: Task, other: Mapping[str, int]) -> Task:
    """Return ``task`` with the default sizes ``other`` for some Dims."""
    sizes = {**task.module().default_sizes(), **other}
    params = ", ".join(f"{n}={s}" for n, s in sizes.items())
    args = ", ".join(f"{n}={n}" for n in sizes)
    text = f"{task.text}\n\n_inputs_by_size = inputs\n\n\ndef inputs({params}):\n    return _inputs_by_size({args})\n"
    return replace(load_task(text, task.name), fidelity=task.fidelity, rounded=task.rounded)


def check_sizes(task: Task, other: Mapping[str, int]) -> None:
    """Raise SessionError if :func:`at_sizes` cannot use these sizes: no such Dim, outside the declared range, not a
    whole number, or tensors that need too much memory."""
    _has_sizes(task)
    for name, size in other.items():
        dim = _dim(task, name)
        if not isinstance(size, int) or not dim.min <= size <= dim.max:
            raise SessionError(
                f"{name} = {size} is outside the declared range.", f"Choose a whole number from {dim.min} to {dim.max}."
            )
    if _bytes(task, other) > _MOST_BYTES:
        raise SessionError(f"{said(other)} takes too much memory to be timed.", "Choose smaller ones.")


def said(sizes: Mapping[str, int]) -> str:
    """The sizes as text: ``M = 64, N = 512``."""
    return ", ".join(f"{name} = {size}" for name, size in sizes.items())


def _has_sizes(task: Task) -> None:
    if task.module().listed:
        raise SessionError(
            "The task lists its inputs case by case: it has none of other sizes.",
            "Write inputs(...) with a keyword for each Dim.",
        )


def _dim(task: Task, name: str) -> Dim:
    dim = next((d for d in task.dims if d.name == name), None)
    if dim is None:
        names = ", ".join(d.name for d in task.dims)
        remedy = f"Choose one of {names}." if names else "Declare its sizes as Dims."
        raise SessionError(f"The task has no Dim {name!r}.", remedy)
    return dim


def _sizes(dim: Dim, own_size: int) -> list[int]:
    """The ends of the range, the task's own size, and sizes between them in equal ratios."""
    low, high = max(dim.min, 1), dim.max
    between = {round(low * (high / low) ** (k / (_POINTS - 2))) for k in range(_POINTS - 1)}
    return sorted({low, own_size, high, *between})


def _bytes(task: Task, other: Mapping[str, int]) -> int:
    sizes = {**task.module().default_sizes(), **other}
    shapes = [*(a.extents(sizes) for a in task.tensors), *(r.extents(sizes) for r in task.results)]
    return 8 * sum(map(prod, shapes))


__all__ = ["Sweep", "SweepPoint", "at_sizes", "check_sizes", "chosen", "said", "sizes_of", "sweep"]
