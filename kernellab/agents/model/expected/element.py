"""The values that a sketch computes on the way to one element of an output.

Only the iterations that can store the element run, one by one, in float64; the values of the one that stores it are
recorded by statement.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from kernellab.agents.model.expected.axes import UNKNOWN, Axes, axes_of
from kernellab.errors import NotRunnable
from kernellab.sketch.program.access import start_of
from kernellab.sketch.program.ints import num
from kernellab.sketch.program.program import (
    Assign,
    AtomicAdd,
    Gemm,
    Kernel,
    Load,
    Loop,
    MultiAssign,
    Point,
    Program,
    Range,
    Scatter,
    Statement,
    Store,
    Tile,
)
from kernellab.sketch.program.walk import parallel_loops, statements
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
#: Maximum number of iterations of a loop that are searched for those that store the element.
_MOST_TURNS = 1 << 16


@dataclass(frozen=True)
class Call:
    """A program's inputs by tensor name, the values of its symbols and constexprs, and the element to follow."""

    inputs: Mapping[str, Any]
    symbols: Mapping[str, int]
    constexpr: Mapping[str, int | float]
    #: The out tensor, and the element's flat index in it.
    tensor: str
    element: int


@dataclass(frozen=True)
class Step:
    """The result of a statement: ``values`` of the element, or the first of its tile (of ``of`` elements).

    ``last`` is the result in the last step of the loop around it, if different. Not ``alone``: it is unknown which of
    the tile's values lead to the element.
    """

    line: int
    name: str
    values: tuple[float, ...]
    of: int = 1
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


def _read_step(line: Any, name: Any, values: Any, of: Any, last: Any, alone: Any) -> Step:
    return Step(int(line), str(name), tuple(map(float, values)), int(of), tuple(map(float, last)), bool(alone))


def _around(kernel: Kernel, tensor: str) -> set[str]:
    """The variables of the loops around each store to ``tensor``: each iteration computes its own elements."""
    loops = [s for s in statements(kernel.body) if isinstance(s, Loop)]
    return {
        loop.var
        for loop in loops
        if any(isinstance(s, (Store, Scatter, AtomicAdd)) and _written(s) == tensor for s in statements(loop.body))
    }


# -- the iterations that matter ------------------------------------------------------------------------------------


def narrowed(program: Program, call: Call) -> Program:
    """Return ``program`` with the grid of the kernels that write the element reduced to its possible iterations."""
    last = max((i for i, k in enumerate(program.kernels) if call.tensor in k.writes), default=-1)
    kernels = tuple(_narrow(k, program, call) if i == last else k for i, k in enumerate(program.kernels))
    return replace(program, kernels=kernels)


def _narrow(kernel: Kernel, program: Program, call: Call) -> Kernel:
    numbers = {k: int(v) for k, v in {**call.constexpr, **call.symbols}.items() if float(v).is_integer()}
    loops, _, _ = parallel_loops(kernel.body)
    writes = [s for s in statements(kernel.body) if isinstance(s, (Store, Scatter, AtomicAdd))]
    stores = [s for s in writes if isinstance(s, Store) and s.region.tensor.name == call.tensor]
    if len(stores) != sum(1 for s in writes if _written(s) == call.tensor):
        return kernel
    body = kernel.body
    for loop in loops:
        turns = {turn for store in stores for turn in _turns(loop, store, numbers, call.element)}
        if stores and len(turns) == 1 and all(_alone(loop, store) for store in stores):
            body = tuple(_replaced(s, loop.var, turns.copy().pop()) for s in body)
    return replace(kernel, body=body)


def _written(stmt: Store | Scatter | AtomicAdd) -> str:
    return stmt.tensor.name if isinstance(stmt, Scatter) else stmt.region.tensor.name


def _alone(loop: Loop, store: Store) -> bool:
    """Whether only the loop's variable determines the store's place along some dimension."""
    return any(start_of(item).loop_vars() == {loop.var} for item in store.region.index)


def _turns(loop: Loop, store: Store, numbers: Mapping[str, int], element: int) -> list[int]:
    """The values of the loop's variable at which ``store`` may reach the element."""
    ends = [e.evaluate(numbers) for e in (loop.start, loop.stop, loop.step) if e.names() <= numbers.keys()]
    if len(ends) < 3 or not _alone(loop, store):
        return []
    turns: Sequence[int] = range(*ends)
    if len(turns) > _MOST_TURNS:
        return []
    shape = [e.evaluate(numbers) for e in store.region.tensor.shape]
    position_of_element = _unravel(element, shape)
    for position, item in zip(position_of_element, store.region.index, strict=True):
        if start_of(item).loop_vars() == {loop.var}:
            turns = [t for t in turns if _reaches(item, {**numbers, loop.var: t}, position)]
    return list(turns)


def _reaches(item: Point | Range, numbers: Mapping[str, int], position: int) -> bool:
    if isinstance(item, Point):
        return item.at.evaluate(numbers) == position
    step = item.step.evaluate(numbers)
    offset = position - item.start.evaluate(numbers)
    return step > 0 and offset % step == 0 and 0 <= offset // step < item.extent.evaluate(numbers)


def _unravel(flat: int, shape: Sequence[int]) -> list[int]:
    indices: list[int] = []
    for size in reversed(shape):
        indices.insert(0, flat % max(size, 1))
        flat //= max(size, 1)
    return indices


def _replaced(stmt: Statement, var: str, turn: int) -> Statement:
    """Return ``stmt`` with its loop over ``var`` only at ``turn``."""
    if not isinstance(stmt, Loop):
        return stmt
    if stmt.var == var:
        return replace(stmt, start=num(turn), stop=num(turn + 1), step=num(1))
    return replace(stmt, body=tuple(_replaced(s, var, turn) for s in stmt.body))


# -- the values on the way -------------------------------------------------------------------------------------------


@dataclass
class _Trail:
    """Records the result of each statement of ``kernel`` and, for the iteration that stores the element, its values."""

    call: Call
    kernel: Kernel
    found: tuple[Step, ...] = ()
    _steps: int = 0
    _pending: tuple[Statement, Scope] | None = None
    #: By statement: the iteration, the line, the tile, and its first and last contents.
    _given: dict[tuple[int, int], tuple[dict[str, int], int, Tile, Tensor, Tensor]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._around = _around(self.kernel, self.call.tensor)
        self._axes = axes_of(self.kernel, self.call.tensor)
        body = list(statements(self.kernel.body))
        self._own = {id(stmt) for stmt in body}
        #: Lines that only load what a launch or an earlier statement has stored.
        stored = {_written(s) for s in body if isinstance(s, (Store, Scatter, AtomicAdd))}
        self._loads = {s.span.line for s in body if isinstance(s, Load) and s.region.tensor.name in stored}

    def step(self, stmt: Statement, scope: Scope) -> None:
        self._flush()
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
        tensor = _written(stmt) if not isinstance(stmt, Load) else ""
        if self.found or tensor != self.call.tensor:
            return
        hit = ((elements == self.call.element) & inside).nonzero()
        if not len(hit):
            return
        offset = [int(i) for i in hit[0][1:]]
        extents = tuple(elements.shape[1:])
        leading = [
            entry
            for entry in self._given.values()
            if entry[2].uid in self._axes and all(indices.get(k) == v for k, v in entry[0].items())
        ]
        if {entry[1] for entry in leading} <= self._loads:
            return  # their values were computed into a tensor that they load
        self.found = tuple(
            _step(line, tile, first, last, offset, extents, self._axes[tile.uid])
            for _, line, tile, first, last in leading
        )

    def _flush(self) -> None:
        if self._pending is None:
            return
        stmt, scope = self._pending
        self._pending = None
        if id(stmt) not in self._own:
            return
        turn = {k: v for k, v in scope.indices.items() if k in self._around and isinstance(v, int)}
        for number, tile in enumerate(_tiles(stmt)):
            contents = scope.tiles[tile.uid]
            key = id(stmt), number
            earlier = self._given.get(key)
            first = earlier[3] if earlier is not None and earlier[0] == turn else contents
            self._given[key] = turn, stmt.span.line, tile, first, contents


def _tiles(stmt: Statement) -> Iterator[Tile]:
    match stmt:
        case Load() | Assign():
            yield stmt.tile
        case Gemm():
            yield stmt.acc
        case MultiAssign():
            yield from stmt.tiles


def _step(
    line: int, tile: Tile, first: Tensor, last: Tensor, offset: Sequence[int], extents: Sequence[int], axes: Axes
) -> Step:  # fmt: skip
    values, of = _at(first, offset, extents, axes)
    later, _ = _at(last, offset, extents, axes)
    return Step(line, tile.name, values, of, later if later != values else (), UNKNOWN not in axes)


def _at(tile: Tensor, offset: Sequence[int], extents: Sequence[int], axes: Axes) -> tuple[tuple[float, ...], int]:
    """The first of the tile's values that lead to the element at ``offset`` of the stored region, and their number."""
    place: list[int | slice] = [0]
    for size, axis in zip(tile.shape[1:], axes, strict=True):
        follows = axis >= 0 and size == extents[axis]
        place.append(offset[axis] if follows else 0 if size == 1 else slice(None))
    values = tile[tuple(place)].reshape(-1)
    return tuple(float(v) for v in values[:_FIRST].tolist()), int(values.numel())
