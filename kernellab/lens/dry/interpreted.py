"""The same call in Triton's interpreter, which runs it: records launches, loads and tiles.

Compiled code shows neither how often a place loads nor how work is shared; and a kernel may branch on whether it runs
in the interpreter. The numbers are drawn here."""

from __future__ import annotations

import math
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kernellab.lens.dry.records import Ran, Request
from kernellab.lens.dry.triton import three

#: fraction of a row's largest number below which a number counts as 0
_SMALL = 1e-3


class _Launch:
    """One launch: the loaded elements, the last program that loaded each, and the number of loads of each program."""

    def __init__(self) -> None:
        self.by: dict[str, Any] = {}
        self.by_program: defaultdict[int, int] = defaultdict(int)
        self.distinct = 0

    @property
    def sharing(self) -> float:
        return self.distinct / max(self.by_program.values(), default=1)


class Watch:
    """Records the launches of this process from :meth:`begin` on."""

    def __init__(self, files: Sequence[str], spans: Callable[[], Sequence[Any]]) -> None:
        self._files, self._spans = {Path(name).name for name in files}, spans
        self.begin(0)

    def begin(self, seconds: int) -> None:
        """Start recording; after ``seconds`` of CPU time only the first program of each launch runs."""
        self.until, self.whole = time.process_time() + seconds, True
        self.drawn, self.program, self.name = bool(seconds), 0, ""
        self.launches: list[list[Any]] = []
        self.sizes: dict[str, int] = {}
        #: place and argument -> the last program that loaded each element there
        self.last: dict[tuple[Any, str, int], Any] = {}
        self.places: set[Any] = set()
        self.again: defaultdict[str, int] = defaultdict(int)
        self.tile = self.products = 0
        self.sharing, self._launch = 0.0, _Launch()

    def launched(self, grid: Sequence[int]) -> None:
        self.sharing, self._launch = max(self.sharing, self._launch.sharing), _Launch()
        self.launches.append([self.name, three([int(n) for n in grid])])

    def loaded(self, pointers: Any, mask: Any) -> None:
        place = self._place()
        self.places.add(place)
        at = np.asarray(pointers).reshape(-1)
        if mask is not None:
            at = at[np.broadcast_to(np.asarray(mask, dtype=bool), np.shape(pointers)).reshape(-1)]
        for span in self._spans():
            here = np.unique(at[(at >= span.begin) & (at < span.end)])
            if not here.size:
                continue
            element, count = ((here - span.begin) // span.size).astype(np.int64), (span.end - span.begin) // span.size
            self.sizes[span.name] = max(self.sizes.get(span.name, 0), count)
            self.tile = max(self.tile, np.size(pointers) * span.size)  # floats may be loaded as integers
            last = self.last.setdefault((place, span.name, count), np.zeros(count, dtype=np.int32))
            self.again[span.name] += int((last[element] == self.program).sum())
            last[element] = self.program
            by = self._launch.by.setdefault(span.name, np.zeros(count, dtype=np.int32))
            self._launch.distinct += int((by[element] == 0).sum())
            self._launch.by_program[self.program] += int((by[element] != self.program).sum())
            by[element] = self.program

    def _place(self) -> Any:
        """Return the calls of the source from the launched function to this load."""
        frame, calls = sys._getframe(2), []
        while frame is not None:
            code = frame.f_code
            if Path(code.co_filename).name in self._files:
                calls.append((code.co_name, frame.f_lasti))
                if code.co_name == self.name:
                    break
            frame = frame.f_back  # type: ignore[assignment]
        return self.name, tuple(calls)

    def multiplied(self, a: Any, b: Any) -> None:
        self.products += bool(_several(a, -1) and _several(b, -2))

    def ran(self, error: str = "") -> Ran:
        self.sharing = max(self.sharing, self._launch.sharing)
        largest = max(self.sizes, key=self.sizes.__getitem__, default="")
        return Ran(
            launches=self.launches, loads=len(self.places), again=self.again.get(largest, 0), tile=self.tile,
            products=self.products, sharing=self.sharing, whole=self.whole, drawn=self.drawn, error=error,
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
        watch.name = self.fn.__name__
        return launch(self, *args, **options)

    def sized(*grid: int) -> Any:
        watch.launched(grid)
        return to_grid(*grid)

    def program(x: int, y: int, z: int) -> Any:
        watch.program += 1
        if (x or y or z) and time.process_time() > watch.until:
            watch.whole = False
            raise _Enough
        return to_program(x, y, z)

    def multiplied(a: Any, b: Any, *rest: Any) -> Any:
        watch.multiplied(a.data, b.data)
        return product(a, b, *rest)

    def kept(self: Any, *args: Any, **options: Any) -> None:
        new_handle(self, *args, **options)
        element = self.get_element_ty() if not self.dtype.is_ptr() else None
        if element is not None and element.is_floating():
            watch.tile = max(watch.tile, self.data.size * element.primitive_bitwidth // 8)

    def first_alone(self: Any, *args: Any, **options: Any) -> Any:
        try:
            return launched(self, *args, **options)
        except interpreter.InterpreterError as error:
            if not isinstance(error.__cause__, _Enough):
                raise
            return None

    executor.__call__, builder.set_grid_dim, builder.set_grid_idx = first_alone, sized, program
    builder.create_dot, handle.__init__ = multiplied, kept
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
