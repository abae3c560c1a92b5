"""The speed of one kernel over the declared range of a Dim, next to eager's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from kernellab.errors import SessionError
from kernellab.export.exportable import Choice
from kernellab.records import Comparison, Ranking, Source
from kernellab.session.turn.context import Bench
from kernellab.session.turn.execute import rank
from kernellab.task import Dim, Task, load_task

#: sizes that are timed, the ends of the range and the task's own among them
_POINTS = 7
#: bytes of a call's tensors, taken as 8 an element, above which a size is not timed
_MOST_BYTES = 1 << 30


@dataclass(frozen=True)
class SweepPoint:
    """One size of the Dim, and what was measured there; a ranking without a time says why in its ``reason``."""

    size: int
    ranking: Ranking

    @property
    def text(self) -> str:
        found = self.ranking
        return f"{self.size:>10}  {found.text if found.ranked else f'{found.stage.value}: {found.reason}'}"


@dataclass(frozen=True)
class Sweep:
    """The points of one Dim, the others at their own sizes; ``left_out``: sizes whose tensors take too much memory."""

    dim: str
    points: tuple[SweepPoint, ...]
    left_out: tuple[int, ...] = ()

    @property
    def worst(self) -> SweepPoint | None:
        """The point with the lowest speedup over eager; None where none was timed in pairs with it."""
        timed = [p for p in self.points if p.ranking.ranked and p.ranking.paired is not None]
        return min(timed, key=lambda p: p.ranking.paired.speedup if p.ranking.paired else 0.0, default=None)

    @property
    def wrong(self) -> tuple[SweepPoint, ...]:
        """The points at which an error was found, or nothing was timed."""
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
    """The choice that the sweeps of several kernels over one Dim say. From one measured size to the next the kernel
    changes only where another one is faster for certain; it changes halfway, as a ratio.

    Raises:
        SessionError: no kernel was timed at any size.
    """
    at: dict[int, dict[int, Comparison]] = {}
    for k, one in enumerate(sweeps):
        for point in one.points:
            if point.ranking.ranked and point.ranking.paired is not None:
                at.setdefault(point.size, {})[k] = point.ranking.paired
    if not at:
        raise SessionError("No kernel was timed at any size.", "See why with kernellab compare SESSION --over DIM.")
    starts: list[tuple[int, int | None]] = []
    before = 0
    for size, timed in sorted(at.items()):
        best = max(timed, key=lambda k: timed[k].speedup)
        now = starts[-1][1] if starts else best
        if now is None or now not in timed or timed[now].high < 1 or timed[best].low > timed[now].high:
            now = best
        picked = None if timed[now].high < 1 else now
        if not starts or picked != starts[-1][1]:
            starts.append((max(before + 1, round((before * size) ** 0.5)) if starts else 0, picked))
        before = size
    return Choice(sweeps[0].dim, tuple(starts))


def sizes_of(tasks: Sequence[Task], name: str) -> list[int]:
    """The sizes at which kernels for these tasks are compared: of each one's range the ends and some between. Raises
    SessionError where a task has no such Dim."""
    return sorted({size for t in tasks for size in _sizes(_dim(t, name), t.module().default_sizes()[name])})


def sweep(
    bench: Bench, source: Source, name: str, told: Callable[[SweepPoint], None] = lambda _: None,
    sizes: Sequence[int] = (),
) -> Sweep:  # fmt: skip
    """``source`` ranked at sizes of the Dim ``name`` from the least to the largest that is declared (of ``sizes`` those
    in its range). Blocking: a second or more a size. ``told`` gets each point when it is measured.

    Raises:
        SessionError: the task has no such Dim.
        TargetError, VerifierError: it cannot be ranked.
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
    """``task`` with ``other`` default sizes of some Dims."""
    sizes = {**task.module().default_sizes(), **other}
    given = ", ".join(f"{n}={s}" for n, s in sizes.items())
    passed = ", ".join(f"{n}={n}" for n in sizes)
    text = f"{task.text}\n\n_inputs_by_size = inputs\n\n\ndef inputs({given}):\n    return _inputs_by_size({passed})\n"
    return replace(load_task(text, task.name), fidelity=task.fidelity, rounded=task.rounded)


def check_sizes(task: Task, other: Mapping[str, int]) -> None:
    """Raises SessionError where :func:`at_sizes` has no such sizes: no such Dim, outside the declared range, no whole
    number, or tensors that take too much memory."""
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
    """``M = 64, N = 512``."""
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
        known = ", ".join(d.name for d in task.dims)
        remedy = f"Choose one of {known}." if known else "Declare its sizes as Dims."
        raise SessionError(f"The task has no Dim {name!r}.", remedy)
    return dim


def _sizes(dim: Dim, own: int) -> list[int]:
    """The ends of the range, the own size, and sizes between them in equal ratios."""
    low, high = max(dim.min, 1), dim.max
    between = {round(low * (high / low) ** (k / (_POINTS - 2))) for k in range(_POINTS - 1)}
    return sorted({low, own, high, *between})


def _bytes(task: Task, other: Mapping[str, int]) -> int:
    sizes = {**task.module().default_sizes(), **other}
    shapes = [*(a.extents(sizes) for a in task.tensors), *(r.extents(sizes) for r in task.results)]
    return 8 * sum(map(prod, shapes))


__all__ = ["Sweep", "SweepPoint", "at_sizes", "check_sizes", "chosen", "said", "sizes_of", "sweep"]
