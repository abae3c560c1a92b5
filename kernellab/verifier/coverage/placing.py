"""Where the arguments of an input lie, and how many threads a call has: operands of comparisons too, which decide by a
stride, an alignment or a team."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from kernellab.verifier.boundary_checks.layouts import Placed, Strides, mixed
from kernellab.verifier.protocol.memory import Layout, lay_out
from kernellab.verifier.protocol.rules import COMBINED

#: remainders of addresses that a source compares with 0
_ALIGNED = 64
#: largest step between neighbours, and between rows in elements, that is tried
_STEP, _ROW = 1 << 10, 1 << 20


@dataclass(frozen=True)
class Placing:
    """Strides of some arguments (position, dimension, elements), arguments off their alignment, and a team of threads
    (0 for the usual one)."""

    strides: tuple[tuple[int, int, int], ...] = ()
    moved: tuple[int, ...] = ()
    threads: int = 0

    def __bool__(self) -> bool:
        return bool(self.strides or self.moved or self.threads)

    def layout(self, args: Sequence[Any]) -> Layout:
        """Return the layout of ``args``. Raises ValueError where the strides do not fit their shapes."""
        if not self.strides and not self.moved:
            return lay_out(args)
        placed: dict[int, Placed] = {}
        for position in {*self.moved, *(position for position, _, _ in self.strides)}:
            steps = {dim: step for at, dim, step in self.strides if at == position}
            strides = stretched(tuple(args[position].shape), steps)
            placed[position] = Placed(_fixed(strides), "element" if position in self.moved else "page")
        return mixed(args, placed)

    def others(self, args: Sequence[Any], free: Sequence[int], a: float, b: float, threads: int) -> Iterator[Placing]:
        """Yield placings in which the operand ``a`` becomes ``b`` or a neighbour: a stride of an argument at a ``free``
        position, in elements or bytes; the remainder of an address; the number of ``threads`` (0 where the source does
        not ask for it)."""
        if not (float(a).is_integer() and float(b).is_integer() and min(a, b) >= 0 and max(a, b) <= _ROW):
            return
        first, other = int(a), int(b)
        try:
            places = self.layout(args).places
        except ValueError:
            return
        for position in free:
            strides, item = places[position].strides, args[position].element_size()
            for dim, stride in enumerate(strides):
                for unit in dict.fromkeys((1, item)):
                    if stride * unit == first and stride and args[position].shape[dim] > 1:
                        wanted = (other // unit, other // unit + 1, other // unit - 1)
                        kept = tuple(one for one in self.strides if one[:2] != (position, dim))
                        for step in wanted:
                            if step != stride and 0 < step <= (_STEP if dim == len(strides) - 1 else _ROW):
                                yield replace(self, strides=(*kept, (position, dim, step)))
            if position not in self.moved and min(first, other) == 0 and max(first, other) < _ALIGNED:
                yield replace(self, moved=(*self.moved, position))
        if threads and first == (self.threads or threads):
            for team in (other, other + 1, other - 1):
                if 0 < team <= max(COMBINED.teams) and team != first:
                    yield replace(self, threads=team)


def _fixed(strides: tuple[int, ...]) -> Strides:
    return lambda shape: strides


def stretched(shape: tuple[int, ...], steps: dict[int, int]) -> tuple[int, ...]:
    """Return strides with those of some dimensions given, the others without gaps. Raises ValueError for given ones so
    small that elements would share memory, and for dimensions that the shape has not."""
    if any(dim >= len(shape) for dim in steps):
        raise ValueError("no such dimension")
    strides: list[int] = []
    room = 1
    for dim in reversed(range(len(shape))):
        step = steps.get(dim, room)
        if step < room:
            raise ValueError("elements would share memory")
        strides.insert(0, step)
        room = step * max(shape[dim], 1)
    return tuple(strides)


def free_places(args: Sequence[Any], written: Sequence[int]) -> list[int]:
    """Return the positions of the first few tensors with elements that may lie elsewhere."""
    found = [
        i for i, a in enumerate(args)
        if isinstance(a, torch.Tensor) and a.numel() and a.dim() and i not in written and a.is_contiguous()
    ]  # fmt: skip
    return found[: COMBINED.relaid_arguments]
