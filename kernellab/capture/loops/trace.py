"""A trace of a few steps of each loop over a Dim, with the step in the mark of every node."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import traceback

#: steps that are traced
TRACED = 4
#: orders of the steps in a list that is joined
_ORDERS = [*range(TRACED)], [*reversed(range(TRACED))]
_JOINS = {torch.stack: True, torch.cat: False, torch.concat: False, torch.concatenate: False}


class Loops:
    """The loops over symbolic numbers that one trace meets."""

    def __init__(self) -> None:
        #: the loop and the step that are traced now
        self.now: tuple[int, int] | None = None
        #: of each loop: how many steps it has
        self.counts: list[Any] = []
        #: tensors that steps made, by their ids
        self._made: dict[int, tuple[Any, tuple[int, int]]] = {}

    def range(self, *args: Any) -> Any:
        """In place of Python's range, where one of its numbers is symbolic."""
        start, stop, step = (0, *args, 1) if len(args) == 1 else (*args, 1)[:3]
        # a loop in a loop is unrolled at the traced size, and a stride has a rest: what holds at one size is refused
        if self.now is not None or step not in (1, -1):
            return range(*map(int, args))
        return _Range(self, start, stop - start if step == 1 else start - stop, step)

    def walk(self, numbers: Iterator[Any], count: Any) -> Iterator[Any]:
        self.counts.append(count)
        try:
            for step, number in enumerate(numbers):
                self.now = (len(self.counts) - 1, step)
                yield number
        finally:
            self.now = None

    def marked(self, line: int) -> Any:
        """The context in which nodes of a trace say the line and the step that made them."""
        return traceback.annotate({"line": line} | ({} if self.now is None else {"step": self.now}))

    def keep(self, result: Any) -> Any:
        """``result``, remembered as the current step's."""
        if self.now is not None:
            for tensor in result if isinstance(result, (tuple, list)) else (result,):
                self._made[id(tensor)] = (tensor, self.now)
        return result

    def joined(self, func: Any, args: Any, kwargs: Any, line: int) -> Any:
        """What stack or cat makes of what all steps of one loop appended, one a step, in the loop's whole length;
        None of anything else."""
        if self.now is not None or not self.counts or func not in _JOINS:
            return None
        tensors = args[0] if args else kwargs.get("tensors")
        dim = args[1] if len(args) > 1 else kwargs.get("dim", kwargs.get("axis", 0))
        marks = [self._made[id(t)][1] for t in tensors if id(t) in self._made]
        steps = [step for _, step in marks]
        if len({loop for loop, _ in marks}) != 1 or steps not in _ORDERS:
            return None
        count, is_new = self.counts[marks[0][0]], _JOINS[func]
        shape = list(tensors[0].shape)
        dim %= len(shape) + is_new
        if not is_new and shape[dim] != 1:
            return None
        filled = tensors[0].new_zeros((*shape[:dim], count, *shape[dim + (not is_new) :]))
        for tensor, mark in sorted(zip(tensors, marks, strict=True), key=lambda pair: pair[1]):
            # a list that runs against the steps has the last one's first of all
            place = mark[1] if steps == _ORDERS[0] else count - 1 - mark[1]
            self.now = mark
            with self.marked(line):
                filled = torch.select_scatter(filled, tensor if is_new else tensor.squeeze(dim), dim, place)
            self.now = None
        return filled


@dataclass(frozen=True)
class _Range:
    """A range of a symbolic length, from either end."""

    loops: Loops
    start: Any
    count: Any
    step: int

    def __iter__(self) -> Iterator[Any]:
        return self.loops.walk(iter([self.start + self.step * k for k in range(TRACED)]), self.count)

    def __reversed__(self) -> Iterator[Any]:
        return iter(_Range(self.loops, self.start + self.step * (self.count - 1), self.count, -self.step))
