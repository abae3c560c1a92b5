"""Triton's interpreter in a worker: accesses stay within the tensors of their launch; an autotuned kernel runs one
configuration, since there is nothing here by which it could be tuned.

Pointers that a kernel makes of integers may lead to any tensor: accesses of such a launch are not looked at.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kernellab.verifier.worker.guards import Trespass


@dataclass
class _Span:
    """The bytes from the first element of an argument to behind its last."""

    name: str
    begin: int
    end: int
    size: int


@dataclass
class Bounds:
    """Where the accesses of the launch that runs may go."""

    spans: list[_Span] = field(default_factory=list)
    #: has the launch made a pointer of an integer?
    free: bool = False

    def begin(self, arguments: dict[str, Any]) -> None:
        self.spans, self.free = [s for name, value in arguments.items() for s in _spans(name, value)], False

    def check(self, what: str, pointers: Any, mask: Any, size: int) -> None:
        """Raises Trespass where an access of ``size`` bytes that the mask lets through is in no tensor."""
        at = np.asarray(pointers).reshape(-1)
        if mask is not None:
            at = at[np.broadcast_to(np.asarray(mask, dtype=bool), np.shape(pointers)).reshape(-1)]
        if self.free or not self.spans or not at.size:
            return
        inside = np.zeros(at.shape, dtype=bool)
        for span in self.spans:
            inside |= (at >= span.begin) & (at + size <= span.end)
        if not inside.all():
            raise Trespass(self._told(what, int(at[~inside][0])))

    def _told(self, what: str, address: int) -> str:
        def distance(span: _Span) -> int:
            return max(span.begin - address, address - span.end, 0)

        near = min(self.spans, key=distance)
        place, count = (address - near.begin) // near.size, (near.end - near.begin) // near.size
        side = "before the beginning" if address < near.begin else "beyond the end"
        return f"{what} {side} of {near.name} (element {place} of {count})"


def install() -> None:
    """Has every kernel of this process run so. Called before the candidate is imported."""
    from triton.runtime import interpreter  # type: ignore[import-untyped]
    from triton.runtime.autotuner import Autotuner  # type: ignore[import-untyped]

    bounds = Bounds()
    interpreter._interpreter = _Checked(interpreter._interpreter, bounds)
    builder, executor = interpreter.interpreter_builder, interpreter.GridExecutor
    to_pointer, launched, tuned = builder.create_int_to_ptr, executor.__call__, Autotuner.run

    def made_of_integer(*args: Any, **kwargs: Any) -> Any:
        bounds.free = True
        return to_pointer(*args, **kwargs)

    def launch(self: Any, *args: Any, **kwargs: Any) -> Any:
        known = inspect.getfullargspec(self.fn)
        named = {k: v for k, v in kwargs.items() if k in known.args or k in known.kwonlyargs}
        bounds.begin(inspect.getcallargs(self.fn, *args, **named))
        return launched(self, *args, **kwargs)

    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        self.configs = self.configs[:1]
        return tuned(self, *args, **kwargs)

    builder.create_int_to_ptr, executor.__call__, Autotuner.run = made_of_integer, launch, run


class _Checked:
    """The interpreter's access to memory, looked at before."""

    def __init__(self, real: Any, bounds: Bounds) -> None:
        self._real, self._bounds = real, bounds

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def load(self, pointers: Any, mask: Any, other: Any, dtype: Any) -> Any:
        self._bounds.check("reads", pointers, mask, np.dtype(dtype).itemsize)
        return self._real.load(pointers, mask, other, dtype)

    def store(self, pointers: Any, value: Any, mask: Any) -> Any:
        self._bounds.check("writes", pointers, mask, value.dtype.itemsize)
        return self._real.store(pointers, value, mask)

    def atomic_rmw(self, op: Any, pointers: Any, value: Any, mask: Any, order: Any) -> Any:
        self._bounds.check("changes memory", pointers, mask, value.dtype.itemsize)
        return self._real.atomic_rmw(op, pointers, value, mask, order)

    def atomic_cas(self, pointers: Any, old: Any, value: Any, order: Any) -> Any:
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
