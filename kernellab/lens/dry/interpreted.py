"""The same call in Triton's interpreter, which runs it: records launches, loads and tiles.

Compiled code shows neither how often a place loads nor how work is shared; and a kernel may branch on whether it runs
in the interpreter. The numbers are drawn here."""

from __future__ import annotations

import math
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from kernellab.lens.dry.records import Ran, Request
from kernellab.lens.dry.triton import three

#: fraction of a row's largest number below which a number counts as 0
_SMALL = 1e-3


@dataclass
class _Launch:
    """The loads of one launch."""

    #: by argument: the last program that loaded each element, 0 for none
    loaded_by: dict[str, Any] = field(default_factory=dict)
    #: elements that a program was the first of its neighbours to load, by program
    loads: Counter[int] = field(default_factory=Counter)
    #: elements that any program loaded
    distinct: int = 0

    @property
    def sharing(self) -> float:
        return self.distinct / max(self.loads.values(), default=1)


@dataclass
class _Call:
    """The record of one call. ``seconds``: CPU time after which only the first program of each launch runs; 0 for a
    call with zeros in place of drawn numbers."""

    seconds: int
    until: float
    whole: bool = True
    #: number of the program that runs, over all launches, and the name of the launched function
    program: int = 0
    name: str = ""
    launches: list[list[Any]] = field(default_factory=list)
    #: elements of each argument that is loaded from
    sizes: dict[str, int] = field(default_factory=dict)
    #: by place, argument and size: the last program that loaded each element there
    last: dict[tuple[Any, str, int], Any] = field(default_factory=dict)
    #: places in the source that load
    places: set[Any] = field(default_factory=set)
    #: by argument: elements that a program loaded repeatedly at one place
    repeated: Counter[str] = field(default_factory=Counter)
    #: bytes of the largest tile
    tile: int = 0
    products: int = 0
    sharing: float = 0.0
    launch: _Launch = field(default_factory=_Launch)


class Watch:
    """Records the launches of this process from :meth:`begin` on."""

    def __init__(self, files: Sequence[str], spans: Callable[[], Sequence[Any]]) -> None:
        self._files, self._spans = {Path(name).name for name in files}, spans
        self.begin(0)

    def begin(self, seconds: int) -> None:
        """Start the record of a call; after ``seconds`` of CPU time only the first program of each launch runs."""
        self.call = _Call(seconds, time.process_time() + seconds)

    def launched(self, grid: Sequence[int]) -> None:
        call = self.call
        call.sharing, call.launch = max(call.sharing, call.launch.sharing), _Launch()
        call.launches.append([call.name, three([int(n) for n in grid])])

    def loaded(self, pointers: Any, mask: Any) -> None:
        place = self._place()
        self.call.places.add(place)
        addresses = np.asarray(pointers).reshape(-1)
        if mask is not None:
            addresses = addresses[np.broadcast_to(np.asarray(mask, dtype=bool), np.shape(pointers)).reshape(-1)]
        for span in self._spans():
            inside = np.unique(addresses[(addresses >= span.begin) & (addresses < span.end)])
            if inside.size:
                # floats may be loaded as integers
                self.call.tile = max(self.call.tile, np.size(pointers) * span.size)
                elements = ((inside - span.begin) // span.size).astype(np.int64)
                self._loaded_elements(place, span.name, elements, (span.end - span.begin) // span.size)

    def _loaded_elements(self, place: Any, argument: str, elements: Any, size: int) -> None:
        """Record that the current program loads ``elements`` of an argument of ``size``."""
        call, launch = self.call, self.call.launch
        call.sizes[argument] = max(call.sizes.get(argument, 0), size)
        last = call.last.setdefault((place, argument, size), np.zeros(size, dtype=np.int32))
        call.repeated[argument] += int((last[elements] == call.program).sum())
        last[elements] = call.program
        loaded_by = launch.loaded_by.setdefault(argument, np.zeros(size, dtype=np.int32))
        launch.distinct += int((loaded_by[elements] == 0).sum())
        launch.loads[call.program] += int((loaded_by[elements] != call.program).sum())
        loaded_by[elements] = call.program

    def _place(self) -> Any:
        """Return the calls of the source from the launched function to this load."""
        frame, calls = sys._getframe(2), []
        while frame is not None:
            code = frame.f_code
            if Path(code.co_filename).name in self._files:
                calls.append((code.co_name, frame.f_lasti))
                if code.co_name == self.call.name:
                    break
            frame = frame.f_back  # type: ignore[assignment]
        return self.call.name, tuple(calls)

    def multiplied(self, a: Any, b: Any) -> None:
        self.call.products += bool(_several(a, -1) and _several(b, -2))

    def ran(self, error: str = "") -> Ran:
        """Return the record of the call."""
        call = self.call
        largest = max(call.sizes, key=call.sizes.__getitem__, default="")
        return Ran(
            launches=call.launches, loads=len(call.places), again=call.repeated[largest], tile=call.tile,
            products=call.products, sharing=max(call.sharing, call.launch.sharing), whole=call.whole,
            drawn=bool(call.seconds), error=error,
        )  # fmt: skip


def _several(values: Any, axis: int) -> bool:
    """Has a row (or column) more than one number that counts? A product with an identity moves elements and adds
    nothing."""
    size = np.abs(np.asarray(values, dtype=np.float64))
    return bool(((size > _SMALL * size.max(axis=axis, keepdims=True)).sum(axis=axis) > 1).any())


def install(request: Request) -> Watch:
    """Record each launch of this process. Triton must be imported before, for its interpreter, and the source after."""
    from triton.runtime import interpreter  # type: ignore[import-untyped]

    from kernellab.verifier.worker import interpreter as worker

    worker.install()
    watch = Watch(list(request.files), lambda: worker.BOUNDS.spans)
    builder, executor, handle = interpreter.interpreter_builder, interpreter.GridExecutor, interpreter.TensorHandle
    launch, to_grid, to_program = executor.__call__, builder.set_grid_dim, builder.set_grid_idx
    product, new_handle = builder.create_dot, handle.__init__

    def launched(self: Any, *args: Any, **options: Any) -> Any:
        watch.call.name = self.fn.__name__
        return launch(self, *args, **options)

    def sized(*grid: int) -> Any:
        watch.launched(grid)
        return to_grid(*grid)

    def program(x: int, y: int, z: int) -> Any:
        watch.call.program += 1
        if (x or y or z) and time.process_time() > watch.call.until:
            watch.call.whole = False
            raise _Enough
        return to_program(x, y, z)

    def multiplied(a: Any, b: Any, *rest: Any) -> Any:
        watch.multiplied(a.data, b.data)
        return product(a, b, *rest)

    def created(self: Any, *args: Any, **options: Any) -> None:
        new_handle(self, *args, **options)
        element = self.get_element_ty() if not self.dtype.is_ptr() else None
        if element is not None and element.is_floating():
            watch.call.tile = max(watch.call.tile, self.data.size * element.primitive_bitwidth // 8)

    def first_alone(self: Any, *args: Any, **options: Any) -> Any:
        try:
            return launched(self, *args, **options)
        except interpreter.InterpreterError as error:
            if not isinstance(error.__cause__, _Enough):
                raise
            return None

    executor.__call__, builder.set_grid_dim, builder.set_grid_idx = first_alone, sized, program
    builder.create_dot, handle.__init__ = multiplied, created
    interpreter._interpreter = _Loading(interpreter._interpreter, watch)
    return watch


class _Enough(Exception):
    """Ends a launch after its first program."""


class _Loading:
    """The interpreter's access to memory, which records loads. An atomic operation loads what it changes."""

    def __init__(self, real: Any, watch: Watch) -> None:
        self._real, self._watch = real, watch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def load(self, pointers: Any, mask: Any, other: Any, dtype: Any) -> Any:
        self._watch.loaded(pointers, mask)
        return self._real.load(pointers, mask, other, dtype)

    def atomic_rmw(self, operation: Any, pointers: Any, value: Any, mask: Any, *order: Any) -> Any:
        self._watch.loaded(pointers, mask)
        return self._real.atomic_rmw(operation, pointers, value, mask, *order)

    def atomic_cas(self, pointers: Any, *values: Any) -> Any:
        self._watch.loaded(pointers, None)
        return self._real.atomic_cas(pointers, *values)


def arguments(specs: Sequence[dict[str, Any]], drawn: bool) -> list[Any]:
    """Return the entry's arguments: floats are drawn (else 0, which touches less memory), masks alternate, other
    numbers are 0."""
    import torch

    generator = torch.Generator().manual_seed(0)

    def tensor(shape: list[int], dtype: torch.dtype) -> Any:
        if drawn and dtype.is_floating_point:
            return torch.randn(shape, generator=generator).to(dtype)
        if drawn and dtype is torch.bool:
            return (torch.arange(math.prod(shape)) % 2 == 0).reshape(shape)
        return torch.zeros(shape, dtype=dtype)

    return [one["value"] if "value" in one else tensor(one["shape"], getattr(torch, one["dtype"])) for one in specs]
