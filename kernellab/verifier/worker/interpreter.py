"""Triton's interpreter in a worker: accesses must stay within the tensors of their launch, and must not race. An
autotuned kernel runs one configuration, since there is nothing here to measure. What a GPU and its compiler refuse is
refused (grids, small products), products in TF32 are rounded as its units round them, and what a masked load leaves
undefined is no number.

The programs of a launch run one after another here and concurrently on a GPU: if one accesses what another stores, or
a thread what another thread of its program has stored before a barrier, the order decides. A program that has used an
atomic operation or a volatile load may have waited for the other, so its accesses are not checked for races.
Pointers made from integers may point into any tensor, so accesses of such a launch are not checked.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from kernellab.dsls.interpreter import correct_interpreter
from kernellab.verifier.protocol.memory import POISON
from kernellab.verifier.worker.guards import Trespass


class Race(Exception):
    """Programs or threads of a launch access one place, in an order that a GPU does not guarantee."""


class Limit(Exception):
    """A GPU cannot execute the requested launch."""


class _Unrun(Exception):
    """Ends a launch of which only the grid was requested."""


#: programs along each axis of a grid (CUDA C++ Programming Guide, compute capabilities)
_PROGRAMS = ((1 << 31) - 1, 65535, 65535)


class _History:
    """The last accesses to each of ``count`` elements of a tensor in a launch."""

    def __init__(self, count: int) -> None:
        #: number of the program that last stored it, and of the one that loaded it; 0: none, -1: several loaded it
        self.stored, self.loaded = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
        #: the lane that stored it, and the barriers that its program had passed by then
        self.lane, self.barriers = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)


@dataclass
class _Span:
    """The bytes from the first element of an argument to the end of its last; ``size`` is that of an element."""

    name: str
    begin: int
    end: int
    size: int

    @cached_property
    def history(self) -> _History:
        return _History(-(-(self.end - self.begin) // self.size))


@dataclass
class Bounds:
    """Where the accesses of the current launch may go, and which programs accessed what."""

    spans: list[_Span] = field(default_factory=list)
    #: has the launch made a pointer from an integer?
    free: bool = False
    program: int = 0
    barriers: int = 0
    #: may the current program have waited for another?
    ordered: bool = False
    #: is only the grid of a launch checked, without running its programs?
    dry: bool = False

    def begin(self, arguments: dict[str, Any]) -> None:
        self.spans, self.free = [s for name, value in arguments.items() for s in _spans(name, value)], False
        self.program = self.barriers = 0

    def grid(self, *programs: int) -> None:
        """Raises Limit for a grid that no GPU supports."""
        for axis, count, most in zip("xyz", programs, _PROGRAMS, strict=False):
            if count > most:
                raise Limit(f"launches {count} programs along axis {axis} of the grid, where a GPU has {most} at most")
        if self.dry:
            raise _Unrun

    def next_program(self) -> None:
        self.program, self.ordered = self.program + 1, False

    def check(self, what: str, pointers: Any, mask: Any, size: int, changes: Callable[[], Any] | None = None) -> None:
        """Check one access. ``changes`` returns which elements a store changes; None for other accesses.

        Raises:
            Trespass: an access of ``size`` bytes that the mask allows is in no tensor.
            Race: another program, or without a barrier another thread of this one, has accessed the same place.
        """
        at = np.asarray(pointers).reshape(-1)
        lane = np.arange(at.size)
        if mask is not None:
            lane = np.flatnonzero(np.broadcast_to(np.asarray(mask, dtype=bool), np.shape(pointers)))
            at = at[lane]
        if self.free or not self.spans or not at.size:
            return
        within = [(span, (at >= span.begin) & (at + size <= span.end)) for span in self.spans]
        inside = np.any([here for _, here in within], axis=0)
        if not inside.all():
            raise Trespass(self._told(what, int(at[~inside][0])))
        for span, here in within:
            if self.program and here.any():
                elements = ((at[here] - span.begin) // span.size).astype(np.int64)
                conflicts, reason = self._met(span.history, what, elements, lane[here], changes)
                # an atomic operation (``changes memory``) is ordered with every access
                if conflicts.any() and not self.ordered and what != "changes memory":
                    raise Race(f"{what} {span.name} (element {elements[conflicts][0]}) {reason}: race")

    def _met(
        self, history: _History, what: str, elements: Any, lanes: Any, changes: Callable[[], Any] | None
    ) -> tuple[Any, str]:
        """Note an access of ``lanes`` to ``elements``. Return which of these conflict with an earlier access, and why;
        ``changes`` as in :meth:`check`."""
        stored, loaded, program = history.stored[elements], history.loaded[elements], self.program
        of_another = (stored != 0) & (stored != program)
        if what == "reads":
            history.loaded[elements] = np.where((loaded == 0) | (loaded == program), program, -1)
            if of_another.any():
                return of_another, "where another program of the launch stores"
            same_barrier = history.barriers[elements] == self.barriers
            of_another_lane = (stored == program) & (history.lane[elements] != lanes) & same_barrier
            return of_another_lane, (
                "what another thread of its program has stored, with no tl.debug_barrier() between"
            )
        of_another |= (loaded != 0) & (loaded != program)
        if changes is not None and of_another.any():
            of_another = of_another & changes()[lanes]
        history.stored[elements], history.lane[elements], history.barriers[elements] = program, lanes, self.barriers
        return of_another, "where another program of the launch reads or stores"

    def _told(self, what: str, address: int) -> str:
        def distance(span: _Span) -> int:
            return max(span.begin - address, address - span.end, 0)

        nearest = min(self.spans, key=distance)
        place, count = (address - nearest.begin) // nearest.size, (nearest.end - nearest.begin) // nearest.size
        side = "before the beginning" if address < nearest.begin else "beyond the end"
        return f"{what} {side} of {nearest.name} (element {place} of {count})"


#: for the launches of this process
BOUNDS = Bounds()


def install() -> None:
    """Make every kernel of this process run in this way. Called before the candidate is imported."""
    from triton.runtime import interpreter  # type: ignore[import-untyped]

    correct_interpreter()
    interpreter._interpreter = _Checked(interpreter._interpreter, BOUNDS)
    interpreter._patch_builtin = _patching(interpreter)
    _watch_launches(interpreter, BOUNDS)
    _watch_order(interpreter, BOUNDS)
    _watch_pointers(interpreter, BOUNDS)
    _compute_as_gpus(interpreter)
    _run_one_configuration()


def _watch_launches(interpreter: Any, bounds: Bounds) -> None:
    """Begin the bounds of each launch, and refuse grids that no GPU supports."""
    executor, builder = interpreter.GridExecutor, interpreter.interpreter_builder
    run_launch, set_grid = executor.__call__, builder.set_grid_dim

    def launch(self: Any, *args: Any, **kwargs: Any) -> Any:
        signature = inspect.getfullargspec(self.fn)
        named = {k: v for k, v in kwargs.items() if k in signature.args or k in signature.kwonlyargs}
        bounds.begin(inspect.getcallargs(self.fn, *args, **named))
        with contextlib.suppress(_Unrun):
            return run_launch(self, *args, **kwargs)

    def checked_grid(*grid: int) -> None:
        set_grid(*grid)
        bounds.grid(*grid)

    executor.__call__, builder.set_grid_dim = launch, checked_grid


def _watch_order(interpreter: Any, bounds: Bounds) -> None:
    """Count programs and their barriers; reductions, scans and products contain barriers."""
    builder, reduction = interpreter.interpreter_builder, interpreter.ReduceScanOpInterface
    set_program = builder.set_grid_idx

    def next_program(*args: Any, **kwargs: Any) -> Any:
        bounds.next_program()
        return set_program(*args, **kwargs)

    def counted(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            bounds.barriers += 1
            return original(*args, **kwargs)

        return call

    builder.set_grid_idx, builder.create_barrier = next_program, counted(builder.create_barrier)
    builder.create_dot, reduction.apply = counted(builder.create_dot), counted(reduction.apply)


def _watch_pointers(interpreter: Any, bounds: Bounds) -> None:
    """Note pointers made from integers and volatile loads; fill in what masked loads leave undefined."""
    builder = interpreter.interpreter_builder
    pointer_of, load = builder.create_int_to_ptr, builder.create_masked_load

    def noted_pointer(*args: Any, **kwargs: Any) -> Any:
        bounds.free = True
        return pointer_of(*args, **kwargs)

    def noted_load(pointers: Any, mask: Any, other: Any, *args: Any, **kwargs: Any) -> Any:
        bounds.ordered = bounds.ordered or bool(kwargs.get("is_volatile", args[-1] if args else False))
        if other is None and not np.all(mask.data):
            other = _undefined(interpreter, pointers)
        return load(pointers, mask, other, *args, **kwargs)

    builder.create_int_to_ptr, builder.create_masked_load = noted_pointer, noted_load


def _compute_as_gpus(interpreter: Any) -> None:
    """Round the factors of TF32 products, and refuse products that are too small for tensor cores."""
    from triton.backends.compiler import GPUTarget  # type: ignore[import-untyped]
    from triton.backends.nvidia.compiler import min_dot_size  # type: ignore[import-untyped]

    builder = interpreter.interpreter_builder
    multiply = builder.create_dot

    def product(a: Any, b: Any, total: Any, precision: Any, *rest: Any) -> Any:
        if getattr(precision, "name", "") == "TF32":
            a, b = (interpreter.TensorHandle(_tf32(h.data), h.dtype) for h in (a, b))
        return multiply(a, b, total, precision, *rest)

    builder.create_dot = product
    builder.codegen_fns["min_dot_size"] = min_dot_size(GPUTarget("cuda", 90, 32))


def _run_one_configuration() -> None:
    """Run an autotuned kernel in its first configuration: there is nothing here to measure."""
    from triton.runtime.autotuner import Autotuner  # type: ignore[import-untyped]

    tuned = Autotuner.run

    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        self.configs = self.configs[:1]
        return tuned(self, *args, **kwargs)

    Autotuner.run = run


def _patching(interpreter: Any) -> Callable[..., None]:
    """A replacement for the patch of a language module that each launch, and each function call in it, makes. It finds
    the builtins once per process, while Triton searches the whole module each time (half of a small launch's time)."""
    names: dict[Any, list[str]] = {}
    is_builtin = interpreter.tl.core.is_builtin

    def patch(module: Any, builder: Any, *scope: Any) -> None:
        if module not in names:
            names[module] = [name for name, member in inspect.getmembers(module) if is_builtin(member)]
        for name in names[module]:
            member = getattr(module, name)
            if is_builtin(member):
                interpreter._patch_attr(module, name, member, builder, *scope)

    return patch


#: bytes of what a masked load leaves undefined, of integers: no small number, as -1 or 0 might be right by chance
_UNDEFINED = 0x5B


def _undefined(interpreter: Any, pointers: Any) -> Any:
    """What a load without ``other`` gives where its mask is false: NaN, or for integers any number (Triton leaves it
    undefined; a GPU's register has what was in it)."""
    kind = pointers.get_element_ty()
    values = np.empty(np.shape(pointers.data), dtype=interpreter._get_np_dtype(kind))
    values.view(np.uint8)[...] = POISON if kind.is_floating() else 1 if kind.is_int1() else _UNDEFINED
    return interpreter.TensorHandle(values, kind)


def _tf32(values: Any) -> Any:
    """float32 as a tensor core reads it: without the last 13 bits of the fraction."""
    if values.dtype != np.float32:
        return values
    truncated = (np.ascontiguousarray(values).view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)
    return np.where(np.isfinite(values), truncated, values)


class _Checked:
    """The interpreter's access to memory, with a check before each access."""

    def __init__(self, real: Any, bounds: Bounds) -> None:
        self._real, self._bounds = real, bounds

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def load(self, pointers: Any, mask: Any, other: Any, dtype: Any) -> Any:
        self._bounds.check("reads", pointers, mask, np.dtype(dtype).itemsize)
        return self._real.load(pointers, mask, other, dtype)

    def store(self, pointers: Any, value: Any, mask: Any) -> Any:
        def changes() -> Any:
            before, bits = self._real.load(pointers, mask, np.zeros_like(value), value.dtype), f"u{value.itemsize}"
            return (np.ascontiguousarray(before).view(bits) != np.ascontiguousarray(value).view(bits)).reshape(-1)

        self._bounds.check("writes", pointers, mask, value.dtype.itemsize, changes)
        return self._real.store(pointers, value, mask)

    def atomic_rmw(self, op: Any, pointers: Any, value: Any, mask: Any, order: Any) -> Any:
        self._bounds.ordered = True
        self._bounds.check("changes memory", pointers, mask, value.dtype.itemsize)
        return self._real.atomic_rmw(op, pointers, value, mask, order)

    def atomic_cas(self, pointers: Any, old: Any, value: Any, order: Any) -> Any:
        self._bounds.ordered = True
        self._bounds.check("changes memory", pointers, None, value.dtype.itemsize)
        return self._real.atomic_cas(pointers, old, value, order)


def _spans(name: str, value: Any) -> Iterator[_Span]:
    if isinstance(value, tuple):
        for part in value:
            yield from _spans(name, part)
        return
    value = getattr(value, "base", value)
    if hasattr(value, "data_ptr") and hasattr(value, "stride") and value.numel():
        size = value.element_size()
        last = sum((n - 1) * s for n, s in zip(value.shape, value.stride(), strict=True))
        yield _Span(name, value.data_ptr(), value.data_ptr() + (last + 1) * size, size)
