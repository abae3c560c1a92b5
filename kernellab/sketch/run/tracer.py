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
from kernellab.sketch.run.interpreter import execute
from kernellab.sketch.run.values import IndexValue, Scope

if TYPE_CHECKING:
    import torch

    Tensor = torch.Tensor

LEVELS = ("fastest", "fast", "medium", "slow")
_MOST_STEPS = 200_000


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
class Made:
    """One execution of a statement that writes a tile: a load, an assignment, a step of a product."""

    line: int
    tile: str
    shape: tuple[int, ...]
    loops: Mapping[str, int]


@dataclass(frozen=True)
class Trace:
    """A run in order of execution, and the bytes moved by memory level (tiles by their hint). The event of a tile comes
    directly before the accesses of the statement that writes it."""

    events: tuple[Touch | Made, ...]
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
    loops = {s.var for kernel in program.kernels for s in statements(kernel.body) if isinstance(s, Loop)}
    recorder = _Recorder(loops, most_steps)
    outcome = execute(program, inputs, symbols=symbols, constexpr=constexpr, watch=recorder)
    integers = {k: int(v) for k, v in outcome.constexpr.items() if float(v).is_integer()}
    names = {**integers, **outcome.symbols}
    shapes = {t.name: tuple(e.evaluate(names) for e in t.shape) for t in program.tensors}
    return Trace(tuple(recorder.events), recorder.bytes, shapes, outcome.outputs)


class _Recorder:
    def __init__(self, loops: set[str], most_steps: int) -> None:
        self.loops = loops
        self.most_steps = most_steps
        self.events: list[Touch | Made] = []
        self.bytes = dict.fromkeys(LEVELS, 0)
        self.steps = 0

    def access(
        self,
        stmt: Load | Store | AtomicAdd | Scatter,
        elements: Tensor,
        inside: Tensor,
        indices: Mapping[str, IndexValue],
    ) -> None:
        visited = tuple(int(e) for e in elements[inside].tolist())
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
            raise NotRunnable("The run is too long to trace.", "Trace it on smaller inputs.")
        loops = self.place(scope.indices)
        for tile in dict.fromkeys(_written(stmt)):
            self.events.append(Made(stmt.span.line, tile.name, scope.extents(tile.shape), loops))
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
