"""Records what each iteration of a sketch reads and writes, and the bytes that move at each memory level."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

from kernellab.errors import NotRunnable
from kernellab.sketch.program.program import (
    AtomicAdd,
    Gemm,
    Load,
    Loop,
    Program,
    Read,
    Scatter,
    Statement,
    Store,
    Tile,
)
from kernellab.sketch.program.walk import statements, subvalues, written_tiles
from kernellab.sketch.run.confined import compute, spoiled
from kernellab.sketch.run.interpreter import RunInput, interpret, prepared
from kernellab.sketch.run.values import IndexValue, Scope

if TYPE_CHECKING:
    import torch

    Tensor = torch.Tensor

LEVELS = ("fastest", "fast", "medium", "slow")
#: most steps of a run that is traced; chosen, not measured
_MOST_STEPS = 200_000
#: most accessed elements: a worker's answer has at most 64 MiB of text
_MOST_ELEMENTS = 6_000_000
_TOO_LONG = "The run is too long to trace.", "Trace it on smaller inputs."


@dataclass(frozen=True)
class Touch:
    """One execution of a load or store: the loop variables and the accessed elements.

    ``elements`` are flat row-major numbers of the elements inside the tensor; ``outside`` counts the places of the
    region outside."""

    line: int
    tensor: str
    is_write: bool
    loops: Mapping[str, int]
    elements: tuple[int, ...]
    outside: int


@dataclass(frozen=True)
class TileWrite:
    """One execution of a statement that writes a tile: a load, an assignment, a step of a product."""

    line: int
    tile: str
    shape: tuple[int, ...]
    loops: Mapping[str, int]


@dataclass(frozen=True)
class Trace:
    """A run in order of execution, and the bytes moved by memory level (tiles by their hint). The event of a tile comes
    directly before the accesses of the statement that writes it."""

    events: tuple[Touch | TileWrite, ...]
    bytes_by_level: Mapping[str, int]
    shapes: Mapping[str, tuple[int, ...]]
    outputs: Mapping[str, Any]

    @property
    def touches(self) -> list[Touch]:
        """Return only the accesses."""
        return [event for event in self.events if isinstance(event, Touch)]

    def count(self, tensor: str, is_write: bool) -> list[int]:
        """Return the number of reads (or writes) of each element of ``tensor``, flat."""
        counts = [0] * prod(self.shapes[tensor])
        for touch in self.touches:
            if touch.tensor == tensor and touch.is_write is is_write:
                for element in touch.elements:
                    counts[element] += 1
        return counts


def trace(
    program: Program,
    inputs: Mapping[str, Any],
    *,
    symbols: Mapping[str, int] | None = None,
    constexpr: Mapping[str, int | float] | None = None,
    most_steps: int = _MOST_STEPS,
) -> Trace:
    """Run ``program`` on small ``inputs``, iteration by iteration, and record its accesses.

    Raises:
        NotRunnable, SketchError: as :func:`kernellab.sketch.run.run`; also a run of more than ``most_steps`` steps.
    """
    run = prepared(program, inputs, symbols=symbols, constexpr=constexpr)
    most, free = run.bytes_of_outputs, run.names_operations
    answer = compute(_traced, run, most_steps, most_bytes=most, free=free)
    outcome = run.outcome(answer)
    integers = {k: int(v) for k, v in run.constexpr.items() if float(v).is_integer()}
    names = {**integers, **run.symbols}
    shapes = {t.name: tuple(e.evaluate(names) for e in t.shape) for t in program.tensors}
    try:
        events = tuple(_event(one, shapes) for one in answer["events"])
        moved = {level: int(answer["bytes"][level]) for level in LEVELS}
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError):
        raise spoiled() from None
    return Trace(events, moved, shapes, outcome.outputs)


def _traced(run: RunInput, most_steps: int) -> dict[str, Any]:
    """In a worker: the run's outputs, its events as lists of their fields, and the bytes by level."""
    loops = {s.var for kernel in run.program.kernels for s in statements(kernel.body) if isinstance(s, Loop)}
    recorder = _Recorder(loops, most_steps)
    results = interpret(run, watch=recorder)
    # not by dataclasses.astuple, which copies each number of a long list
    events = [
        [e.line, e.tensor, e.is_write, dict(e.loops), e.elements, e.outside]
        if isinstance(e, Touch)
        else [e.line, e.tile, e.shape, dict(e.loops)]
        for e in recorder.events
    ]
    return {**results, "events": events, "bytes": recorder.bytes}


def _event(fields: Any, shapes: Mapping[str, tuple[int, ...]]) -> Touch | TileWrite:
    """Return the event with these fields. Raises LookupError, TypeError, ValueError: there is none such."""
    if len(fields) == 4:
        line, tile, shape, loops = fields
        return TileWrite(int(line), str(tile), tuple(map(int, shape)), _counters(loops))
    line, tensor, is_write, loops, elements, outside = fields
    count = prod(shapes[tensor])
    if not all(type(n) is int and 0 <= n < count for n in elements):
        raise ValueError("elements outside the tensor")
    return Touch(int(line), tensor, bool(is_write), _counters(loops), tuple(elements), int(outside))


def _counters(loops: Any) -> dict[str, int]:
    return {str(name): int(value) for name, value in loops.items()}


class _Recorder:
    """Watches a run (:class:`~kernellab.sketch.run.machine.Watch`) and keeps its events."""

    def __init__(self, loops: set[str], most_steps: int) -> None:
        self.loops = loops
        self.most_steps = most_steps
        self.events: list[Touch | TileWrite] = []
        self.bytes = dict.fromkeys(LEVELS, 0)
        self.steps = self.elements = 0

    def access(
        self,
        stmt: Load | Store | AtomicAdd | Scatter,
        elements: Tensor,
        inside: Tensor,
        indices: Mapping[str, IndexValue],
    ) -> None:
        visited = tuple(int(e) for e in elements[inside].tolist())
        self.elements += len(visited)
        if self.elements > _MOST_ELEMENTS:
            raise NotRunnable(*_TOO_LONG)
        tensor = stmt.tensor if isinstance(stmt, Scatter) else stmt.region.tensor
        is_write = not isinstance(stmt, Load)
        outside = elements.numel() - len(visited)
        touch = Touch(stmt.span.line, tensor.name, is_write, self.place(indices), visited, outside)
        self.events.append(touch)
        self.bytes["slow"] += len(visited) * tensor.dtype.bytes * (2 if _adds(stmt) else 1)

    def place(self, indices: Mapping[str, IndexValue]) -> dict[str, int]:
        """Return the values of the loop variables."""
        return {k: v for k, v in indices.items() if k in self.loops and isinstance(v, int)}

    def step(self, stmt: Statement, scope: Scope) -> None:
        self.steps += 1
        if self.steps > self.most_steps:
            raise NotRunnable(*_TOO_LONG)
        loops = self.place(scope.indices)
        for tile in dict.fromkeys(_written(stmt)):
            self.events.append(TileWrite(stmt.span.line, tile.name, scope.extents(tile.shape), loops))
        for tile in _tiles(stmt):
            size = prod(scope.extents(tile.shape)) * tile.dtype.bytes
            self.bytes[next((h for h in tile.hints if h in LEVELS), "fast")] += size


def _adds(stmt: Load | Store | AtomicAdd | Scatter) -> bool:
    return isinstance(stmt, AtomicAdd) or (isinstance(stmt, Scatter) and stmt.add)


def _tiles(stmt: Statement) -> list[Tile]:
    """Return each tile that one execution of ``stmt`` reads or writes, once for each time."""
    read = [v.tile for value in stmt.values for v in subvalues(value) if isinstance(v, Read)]
    return [*read, *_written(stmt)]


def _written(stmt: Statement) -> tuple[Tile, ...]:
    """Return the tiles that it writes; a statement that adds to a tile reads it too, and yields it twice."""
    tiles = written_tiles(stmt)
    return tiles * 2 if isinstance(stmt, Gemm) else tiles
