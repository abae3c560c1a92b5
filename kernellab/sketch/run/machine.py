"""Executes the statements of a resolved sketch.

The iterations of parallel loops are computed together, as the first axis of every tile, if no inner loop bound or
condition depends on them; the others run one after another. Memory is accessed only inside a tensor's bounds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, prod
from time import thread_time
from typing import TYPE_CHECKING, Protocol, cast

from kernellab.errors import NotRunnable, SketchError
from kernellab.sketch.program.program import (
    Alloc,
    Apply,
    Assign,
    AtomicAdd,
    Const,
    DType,
    Gemm,
    If,
    Kernel,
    LibraryCall,
    Load,
    Loop,
    MultiAssign,
    Region,
    Scatter,
    Statement,
    Store,
    Tile,
    Type,
    whole,
)
from kernellab.sketch.program.program import Tensor as Memory
from kernellab.sketch.program.walk import statements
from kernellab.sketch.run.confined import OutOfTime
from kernellab.sketch.run.elements import as_bytes, elements_at, elements_of, read_at
from kernellab.sketch.run.library import called
from kernellab.sketch.run.values import (
    IndexValue,
    Scope,
    convert,
    evaluate,
    in_order,
    matmul,
    poison,
    stretch,
    welford,
    zeros,
)

if TYPE_CHECKING:
    import torch

    Tensor = torch.Tensor


#: the tile of an access that the watch sees and no statement names
_NO_TILE = Tile("gathered", "gathered", (), DType.F32)


def is_out_of_memory(error: Exception) -> bool:
    """Is it torch's error of an allocation on a CPU, which has no class?"""
    return "can't allocate memory" in str(error) or "bad_alloc" in str(error)


#: most elements of one step: those of the largest tile times the iterations that are computed together
_BATCH_ELEMENTS = 1 << 20
#: most elements of a tile: 512 MB in float64, and a step makes several tiles
_TILE_ELEMENTS = 1 << 26


class Watch(Protocol):
    """Observes every execution of a statement that is not a loop; with it, iterations run one by one."""

    def access(
        self,
        stmt: Load | Store | AtomicAdd | Scatter,
        elements: Tensor,
        inside: Tensor,
        indices: Mapping[str, IndexValue],
    ) -> None:
        """Called for each access; ``elements`` are flat element numbers of the region's tensor, of which those
        ``inside`` exist."""

    def step(self, stmt: Statement, scope: Scope) -> None:
        """Called before ``stmt`` runs."""


@dataclass
class Machine:
    """Executes kernels on a memory (tensor name -> contents).

    ``keep`` is the largest number of iterations of each parallel loop that run (first, last, and evenly between); None
    runs all. ``written`` has masks of the stored elements of each tensor. ``watch`` observes every step."""

    memory: dict[str, Tensor]
    written: dict[str, Tensor]
    keep: int | None = None
    watch: Watch | None = None
    #: time.thread_time() at which a run ends: CPU time, so that a busy machine does not end it sooner
    deadline: float = inf
    #: may the iterations of a loop be computed together? by its id
    _together: dict[int, bool] = field(default_factory=dict)
    #: elements of the kernel's largest tile
    _widest: int = 1
    #: number of scatters to each element in this launch, by tensor
    _scattered: dict[str, Tensor] = field(default_factory=dict)
    #: the statement that runs
    _current: Statement = field(default_factory=lambda: Alloc(_NO_TILE, False))

    def launch(self, kernel: Kernel, scope: Scope) -> None:
        """Run one kernel.

        Raises:
            SketchError: an operation that its operands do not allow, with its line.
        """
        self._scattered.clear()
        scope.gather = self._gather
        self._widest = max([1, *(prod(scope.extents(t.shape)) for t in _tiles(kernel.body))])
        if self._widest > _TILE_ELEMENTS:
            raise OutOfTime("The sketch's tiles are too large to interpret it.", "Take smaller tiles.")
        self._body(kernel.body, scope, 1)

    def _body(self, body: Sequence[Statement], scope: Scope, count: int) -> None:
        for stmt in body:
            self._check_time()
            try:
                self._step(stmt, scope, count)
            except (RuntimeError, IndexError, ValueError, TypeError, NotImplementedError, ZeroDivisionError) as error:
                reason = next(iter(str(error).splitlines()), "") or type(error).__name__
                if is_out_of_memory(error):
                    raise NotRunnable(
                        f"Line {stmt.span.line} of the sketch needs more memory than there is to compute it.",
                        "Give smaller sizes or tiles.",
                    ) from error
                raise SketchError(
                    f"Line {stmt.span.line} of the sketch cannot be computed: {reason}.",
                    "Check that its shapes and dtypes agree.",
                ) from error

    def _check_time(self) -> None:
        if thread_time() > self.deadline:
            raise OutOfTime("The sketch takes too long to interpret at this size.", "Let the code be verified instead.")

    def _step(self, stmt: Statement, scope: Scope, count: int) -> None:
        self._current = stmt
        if self.watch is not None and not isinstance(stmt, (Loop, If)):
            self.watch.step(stmt, scope)
        match stmt:
            case Alloc():
                shape = (1, *scope.extents(stmt.tile.shape))
                dtype = scope.dtype(stmt.tile.dtype)
                scope.tiles[stmt.tile.uid] = zeros(shape, dtype) if stmt.init_zero else poison(shape, dtype)
            case Load():
                value = self._read(stmt, scope)
                self._set(stmt.tile, value, scope)
            case Store() | AtomicAdd():
                self._write(stmt, scope, count)
            case Scatter():
                self._scatter(stmt, scope, count)
            case Assign():
                self._set(stmt.tile, evaluate(stmt.value, scope), scope)
            case Gemm():
                dtype = scope.dtype(stmt.acc.dtype)
                product = matmul(evaluate(stmt.a, scope), evaluate(stmt.b, scope), dtype)
                self._set(stmt.acc, scope.tiles[stmt.acc.uid] + product, scope)
            case MultiAssign():
                self._several(stmt, scope)
            case LibraryCall():
                self._library(stmt, scope)
            case Loop():
                self._loop(stmt, scope, count)
            case If():
                self._body(stmt.then if _plain(scope.index(stmt.cond)) else stmt.orelse, scope, count)

    def _set(self, tile: Tile, value: Tensor, scope: Scope) -> None:
        scope.tiles[tile.uid] = stretch(convert(value, scope.dtype(tile.dtype)), scope.extents(tile.shape))

    def _several(self, stmt: MultiAssign, scope: Scope) -> None:
        attrs = dict(stmt.attrs)
        if stmt.op in ("sort", "topk"):
            count = scope.extents(stmt.tiles[1].shape)[cast(int, attrs["axis"])]
            x = evaluate(stmt.args[0], scope)
            pair = in_order(x, cast(int, attrs["axis"]) + 1, bool(attrs["descending"]), count)
            for tile, value in zip(stmt.tiles, pair, strict=True):
                self._set(tile, value, scope)
            return
        if stmt.op != "welford":
            raise NotImplementedError(f"{stmt.op} does not give several results")
        axes = cast("tuple[int, ...]", attrs.get("axes", ()))
        x = evaluate(stmt.args[0], scope)
        results = welford(x, axes, bool(attrs.get("keepdims", False)), scope.dtype(stmt.tiles[0].dtype))
        for tile, value in zip(stmt.tiles, results, strict=True):
            self._set(tile, value, scope)

    def _library(self, stmt: LibraryCall, scope: Scope) -> None:
        if self.watch is not None:
            for operand in stmt.operands:
                flat, inside = elements_of(operand.region, scope)
                self.watch.access(Load(_NO_TILE, operand.region, 0.0, False, stmt.span), flat, inside, scope.indices)
            flat, inside = elements_of(whole(stmt.out), scope)
            nothing = Const(Type((), stmt.out.dtype), 0.0)
            self.watch.access(Store(whole(stmt.out), nothing, stmt.span), flat, inside, scope.indices)
        operands = [
            self.memory[o.tensor.name].reshape(scope.extents(o.tensor.shape)).permute(o.order) for o in stmt.operands
        ]
        sizes = {name: int(value) for name, value in scope.indices.items() if isinstance(value, int)}
        result = called(stmt, operands, scope.extents(stmt.out.shape), sizes, scope.f64)
        target = self.memory[stmt.out.name]
        target.copy_(convert(result, target.dtype).reshape(target.shape))
        self.written[stmt.out.name].fill_(True)

    # -- loops

    def _loop(self, loop: Loop, scope: Scope, count: int) -> None:
        start, stop, step = (_plain(scope.index(e)) for e in (loop.start, loop.stop, loop.step))
        if step <= 0:
            raise ValueError(f"the loop over {loop.var} has the step {step}")
        turns: Sequence[int] = range(start, stop, step)
        if loop.hints.parallel and self.keep is not None:
            turns = _spread(turns, self.keep)
        if not turns:
            return
        if not loop.hints.parallel:
            outer = scope.indices
            for i in turns:
                self._check_time()
                scope.indices = {**outer, loop.var: i}
                self._body(loop.body, scope, count)
            scope.indices = outer
            return
        if self.watch is not None or not self._may_run_together(loop):
            for i in turns:
                inner = Scope({**scope.indices, loop.var: i}, scope.numbers, scope.f64, dict(scope.tiles), scope.gather)
                self._body(loop.body, inner, count)
            return
        for chunk in self._chunks(len(turns) * count):
            inner = _widen(scope, loop.var, turns, chunk)
            self._body(loop.body, inner, len(chunk))

    def _chunks(self, total: int) -> Iterator[range]:
        most = max(1, _BATCH_ELEMENTS // self._widest)
        for first in range(0, total, most):
            yield range(first, min(first + most, total))

    def _may_run_together(self, loop: Loop) -> bool:
        """Does no loop bound or condition inside depend on the loop's variable?"""
        key = id(loop)
        if key not in self._together:
            controls = [
                e
                for s in statements(loop.body)
                for e in ((s.start, s.stop, s.step) if isinstance(s, Loop) else (s.cond,) if isinstance(s, If) else ())
            ]
            self._together[key] = not any(loop.var in e.loop_vars() for e in controls)
        return self._together[key]

    # -- memory

    def _read(self, stmt: Load, scope: Scope) -> Tensor:
        source = self.memory[stmt.region.tensor.name]
        flat, inside = elements_of(stmt.region, scope)
        if self.watch is not None:
            self.watch.access(stmt, flat, inside, scope.indices)
        return read_at(source, flat, inside, stmt.pad)

    def _gather(self, value: Apply, index: list[Tensor], scope: Scope) -> Tensor:
        tensor = value.attr("tensor")
        pad = value.attr("pad", 0.0)
        assert isinstance(tensor, Memory) and isinstance(pad, float)
        source = self.memory[tensor.name]
        flat, inside = elements_at(index, scope.extents(tensor.shape), scope.extents(value.type.shape))
        if self.watch is not None:
            stmt = Load(_NO_TILE, Region(tensor, ()), pad, False, self._current.span)
            self.watch.access(stmt, flat, inside, scope.indices)
        return read_at(source, flat, inside, pad)

    def _scatter(self, stmt: Scatter, scope: Scope, count: int) -> None:
        target = self.memory[stmt.tensor.name]
        index = [evaluate(v, scope) for v in stmt.index]
        flat, inside = elements_at(index, scope.extents(stmt.tensor.shape), scope.extents(stmt.shape))
        if self.watch is not None:
            self.watch.access(stmt, flat, inside, scope.indices)
        value = stretch(convert(evaluate(stmt.value, scope), target.dtype), flat.shape[1:])
        rows = max(flat.shape[0], value.shape[0], count)
        flat, inside, value = (t.expand(rows, *t.shape[1:]) for t in (flat, inside, value))
        chosen, values = flat[inside], value[inside]
        if stmt.add:
            target.view(-1).index_put_((chosen,), values, accumulate=True)
        else:
            self._check_unique(stmt, chosen, target.numel())
            as_bytes(target).view(-1)[chosen] = as_bytes(values.contiguous())
        self.written[stmt.tensor.name].view(-1)[chosen] = True

    def _check_unique(self, stmt: Scatter, chosen: Tensor, elements: int) -> None:
        """Refuse an element that this launch has scattered to before, although the author states ``unique``."""
        import torch

        counts = self._scattered.setdefault(stmt.tensor.name, torch.zeros(elements, dtype=torch.int64))
        counts.index_put_((chosen,), torch.ones_like(chosen), accumulate=True)
        if bool((counts[chosen] > 1).any()):
            raise SketchError(
                f"Line {stmt.span.line} of the sketch scatters to one element of {stmt.tensor.name} twice.",
                "unique=true promises that no index repeats: give indices that keep it, or use atomic_add.",
            )

    def _write(self, stmt: Store | AtomicAdd, scope: Scope, count: int) -> None:
        target = self.memory[stmt.region.tensor.name]
        flat, inside = elements_of(stmt.region, scope)
        if self.watch is not None:
            self.watch.access(stmt, flat, inside, scope.indices)
        value = stretch(convert(evaluate(stmt.value, scope), target.dtype), flat.shape[1:])
        # every iteration adds, even if all of them share place and value
        rows = max(flat.shape[0], value.shape[0], count if isinstance(stmt, AtomicAdd) else 1)
        flat, inside, value = (t.expand(rows, *t.shape[1:]) for t in (flat, inside, value))
        chosen, values = flat[inside], value[inside]
        if isinstance(stmt, AtomicAdd):
            target.view(-1).index_put_((chosen,), values, accumulate=True)
        else:
            as_bytes(target).view(-1)[chosen] = as_bytes(values.contiguous())
        self.written[stmt.region.tensor.name].view(-1)[chosen] = True


def _widen(scope: Scope, var: str, turns: Sequence[int], chunk: range) -> Scope:
    """Return the scope of a slice of (outer iterations x ``turns``) that is computed together; outer tiles are
    repeated."""
    import torch

    number = torch.arange(chunk.start, chunk.stop)
    outer, turn = number // len(turns), number % len(turns)
    indices: dict[str, IndexValue] = {k: v if isinstance(v, int) else v[outer] for k, v in scope.indices.items()}
    indices[var] = turn * turns.step + turns.start if isinstance(turns, range) else torch.tensor(turns)[turn]
    tiles = {k: t if t.shape[0] == 1 else t[outer] for k, t in scope.tiles.items()}
    return Scope(indices, scope.numbers, scope.f64, tiles, scope.gather)


def _spread(turns: Sequence[int], keep: int) -> Sequence[int]:
    """Return at most ``keep`` of ``turns``: the first, the last, the one before, and evenly between."""
    if len(turns) <= keep:
        return turns
    count = len(turns)
    picked = {0, count - 1, max(0, count - 2), *(i * (count - 1) // max(1, keep - 2) for i in range(max(0, keep - 2)))}
    return [turns[i] for i in sorted(picked)[:keep]] if keep > 1 else [turns[-1]]


def _plain(value: IndexValue) -> int:
    if isinstance(value, int):
        return value
    first = int(value.reshape(-1)[0])
    if bool((value != first).any()):
        raise ValueError("a loop bound or condition differs between iterations that run together")
    return first


def _tiles(body: Sequence[Statement]) -> Iterator[Tile]:
    for stmt in statements(tuple(body)):
        match stmt:
            case Alloc() | Load() | Assign():
                yield stmt.tile
            case Gemm():
                yield stmt.acc
            case MultiAssign():
                yield from stmt.tiles
