"""The values that a sketch computes on the way to one element of an output.

Only the iterations that can store the element run, one by one, in float64; the values of the one that stores it are
recorded by statement.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from kernellab.agents.model.expected.axes import UNKNOWN, Axes, axes_of
from kernellab.agents.model.expected.narrow import Call, tensor_of
from kernellab.errors import NotRunnable
from kernellab.sketch.program.program import (
    Assign,
    AtomicAdd,
    Gemm,
    Kernel,
    Load,
    Loop,
    MultiAssign,
    Program,
    Scatter,
    Statement,
    Store,
    Tile,
)
from kernellab.sketch.program.walk import statements
from kernellab.sketch.run.confined import compute, spoiled
from kernellab.sketch.run.interpreter import RunInput, execute, interpret, prepared
from kernellab.sketch.run.values import IndexValue, Scope

if TYPE_CHECKING:
    import torch

    Tensor = torch.Tensor

#: Maximum number of statements that run, one by one.
_MOST_STEPS = 20_000
#: Number of recorded values of a tile.
_FIRST = 4


@dataclass(frozen=True)
class Step:
    """The result of a statement: ``values`` of the element, or the first of its tile (of ``count`` elements).

    ``last`` is the result in the last step of the loop around it, if different. Not ``alone``: it is unknown which of
    the tile's values lead to the element.
    """

    line: int
    name: str
    values: tuple[float, ...]
    count: int = 1
    last: tuple[float, ...] = ()
    alone: bool = True


def value_at(program: Program, call: Call, seconds: float) -> float:
    """Return the element as the sketch computes it, in float64. Raises NotRunnable, SketchError."""
    ran = execute(
        program, call.inputs, symbols=call.symbols, constexpr=call.constexpr, f64=True, seconds=seconds
    )  # fmt: skip
    return float(ran.outputs[call.tensor].reshape(-1)[call.element])


def steps_to(program: Program, call: Call, seconds: float) -> tuple[Step, ...]:
    """Return the statements before the store of the element, each with its result; empty if none stores it.

    Raises:
        NotRunnable: more than ``seconds`` of this thread's time, or too many statements.
        SketchError: a statement cannot be computed.
    """
    if not any(call.tensor in kernel.writes for kernel in program.kernels):
        return ()
    run_input = prepared(program, call.inputs, symbols=call.symbols, constexpr=call.constexpr, f64=True)
    answer = compute(
        _followed, run_input, replace(call, inputs={}), seconds, seconds=seconds, free=run_input.names_operations
    )  # fmt: skip
    try:
        return tuple(_read_step(*fields) for fields in answer)
    except (TypeError, ValueError):
        raise spoiled() from None


def _followed(run_input: RunInput, call: Call, seconds: float) -> list[tuple[Any, ...]]:
    """In a worker: the fields of each step to the element."""
    storing = [kernel for kernel in run_input.program.kernels if call.tensor in kernel.writes]
    trail = _Trail(call, storing[-1])
    interpret(run_input, seconds=seconds, watch=trail)
    return [astuple(step) for step in trail.found]


def _read_step(line: Any, name: Any, values: Any, count: Any, last: Any, alone: Any) -> Step:
    """The step of a worker's answer, whose fields may be spoiled. Raises TypeError, ValueError."""
    return Step(int(line), str(name), tuple(map(float, values)), int(count), tuple(map(float, last)), bool(alone))


@dataclass(frozen=True)
class _Recorded:
    """A tile's contents after its statement, in the first and the last step of the loops inside one iteration of those
    around the stores (``iteration``: their variables' values)."""

    iteration: dict[str, int]
    line: int
    tile: Tile
    first: Tensor
    last: Tensor


@dataclass
class _Trail:
    """Records the result of each statement of ``kernel`` and, for the iteration that stores the element, its values.

    The interpreter calls :meth:`step` before a statement and :meth:`access` when it loads or stores, so a statement's
    result is read one step later.
    """

    call: Call
    kernel: Kernel
    #: The steps to the element; empty until it is stored.
    found: tuple[Step, ...] = ()
    _steps: int = 0
    #: The statement that runs now, with its scope.
    _pending: tuple[Statement, Scope] | None = None
    #: By statement and number of its tile.
    _recorded: dict[tuple[int, int], _Recorded] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._axes = axes_of(self.kernel, self.call.tensor)
        body = list(statements(self.kernel.body))
        self._statement_ids = {id(stmt) for stmt in body}
        stores = [s for s in body if isinstance(s, (Store, Scatter, AtomicAdd))]
        #: Variables of the loops around each store to the tensor: each iteration computes its own elements.
        self._outer_vars = {loop.var for loop in body if isinstance(loop, Loop) and _stores_to(self.call.tensor, loop)}
        #: Lines that only load what a launch or an earlier statement has stored.
        stored = {tensor_of(s) for s in stores}
        self._reloads = {s.span.line for s in body if isinstance(s, Load) and s.region.tensor.name in stored}

    def step(self, stmt: Statement, scope: Scope) -> None:
        self._record_pending()
        self._steps += 1
        if self._steps > _MOST_STEPS:
            raise NotRunnable("The run is too long to follow.", "Look at a smaller case.")
        self._pending = stmt, scope

    def access(
        self,
        stmt: Load | Store | AtomicAdd | Scatter,
        elements: Tensor,
        inside: Tensor,
        indices: Mapping[str, IndexValue],
    ) -> None:
        if self.found or isinstance(stmt, Load) or tensor_of(stmt) != self.call.tensor:
            return
        hit = ((elements == self.call.element) & inside).nonzero()
        if not len(hit):
            return
        offset, extents = [int(i) for i in hit[0][1:]], tuple(elements.shape[1:])
        leading = [
            entry
            for entry in self._recorded.values()
            if entry.tile.uid in self._axes and all(indices.get(var) == i for var, i in entry.iteration.items())
        ]
        if {entry.line for entry in leading} <= self._reloads:
            return  # their values were computed into a tensor that they load
        self.found = tuple(_step(entry, offset, extents, self._axes[entry.tile.uid]) for entry in leading)

    def _record_pending(self) -> None:
        if self._pending is None:
            return
        stmt, scope = self._pending
        self._pending = None
        if id(stmt) not in self._statement_ids:
            return
        iteration = {k: v for k, v in scope.indices.items() if k in self._outer_vars and isinstance(v, int)}
        for number, tile in enumerate(_tiles(stmt)):
            contents, key = scope.tiles[tile.uid], (id(stmt), number)
            earlier = self._recorded.get(key)
            first = earlier.first if earlier is not None and earlier.iteration == iteration else contents
            self._recorded[key] = _Recorded(iteration, stmt.span.line, tile, first, contents)


def _stores_to(tensor: str, loop: Loop) -> bool:
    stores = (s for s in statements(loop.body) if isinstance(s, (Store, Scatter, AtomicAdd)))
    return any(tensor_of(store) == tensor for store in stores)


def _tiles(stmt: Statement) -> Iterator[Tile]:
    match stmt:
        case Load() | Assign():
            yield stmt.tile
        case Gemm():
            yield stmt.acc
        case MultiAssign():
            yield from stmt.tiles


def _step(entry: _Recorded, offset: Sequence[int], extents: Sequence[int], axes: Axes) -> Step:
    leading = _leading(entry.first, offset, extents, axes)
    first, last = _first_values(leading), _first_values(_leading(entry.last, offset, extents, axes))
    count = int(leading.numel())
    return Step(entry.line, entry.tile.name, first, count, last if last != first else (), UNKNOWN not in axes)


def _leading(tile: Tensor, offset: Sequence[int], extents: Sequence[int], axes: Axes) -> Tensor:
    """The tile's values that lead to the element at ``offset`` of the stored region, flat."""
    place: list[int | slice] = [0]
    for size, axis in zip(tile.shape[1:], axes, strict=True):
        follows = axis >= 0 and size == extents[axis]
        place.append(offset[axis] if follows else 0 if size == 1 else slice(None))
    return tile[tuple(place)].reshape(-1)


def _first_values(values: Tensor) -> tuple[float, ...]:
    return tuple(float(value) for value in values[:_FIRST].tolist())
