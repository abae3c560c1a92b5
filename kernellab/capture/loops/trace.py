"""A trace of a few steps of each loop over a Dim or a long range, with the step in the mark of every node."""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any

import torch
from torch.fx import traceback

from kernellab.capture.pairs import Pair
from kernellab.errors import CaptureError

#: steps that are traced
TRACED = 4
#: orders of the steps in a list that is joined
_ORDERS = [*range(TRACED)], [*reversed(range(TRACED))]
_JOINS = {torch.stack: True, torch.cat: False, torch.concat: False, torch.concatenate: False}
#: what `for row in x` calls
_ROWS = (torch.Tensor.unbind, torch.unbind)
_ROLLS = (torch.Tensor.roll, torch.roll)
#: the instruction that begins a step, in a `for` as in a comprehension
_NEXT = dis.opmap["FOR_ITER"]
#: what Python from 3.11 on has behind instructions; a generator's caller is seen there from 3.12 on
_CACHE = dis.opmap.get("CACHE", -1)


class Loops:
    """The loops over symbolic numbers that one trace meets, and over fixed ones of ``least`` steps or more. ``most``:
    calls of torch that it may make. ``keeps_all``: what steps make are outputs of the trace, for torch drops what none
    of the few steps reads, and a step may make it for one that is not traced."""

    def __init__(self, least: int, most: int, keeps_all: bool = False) -> None:
        self._least, self.most, self._keeps_all = least, most, keeps_all
        #: the loop and the step that are traced now
        self.now: tuple[int, int] | None = None
        #: of each loop: how many steps it has
        self.counts: list[Any] = []
        #: the frame and the instruction that walk the loop which is traced now
        self._by: tuple[Any, int] | None = None
        #: tensors that steps made, by their ids
        self._made: dict[int, tuple[Any, tuple[int, int]]] = {}

    def range(self, *args: Any) -> Any:
        """In place of Python's range, where one of its numbers is symbolic."""
        start, stop, step = (0, *args, 1) if len(args) == 1 else (*args, 1)[:3]
        if not isinstance(step, int):
            return range(*map(int, args))  # what holds at one size is refused
        apart = stop - start if step > 0 else start - stop
        count = apart if abs(step) == 1 else (apart + abs(step) - 1) // abs(step)
        return Walked(self, count, lambda k: start + step * k)

    def plain_range(self, *args: Any) -> Any:
        """In place of Python's range of plain numbers."""
        steps = range(*args)
        if self.now is not None or len(steps) < self._least:
            return steps
        return Walked(self, len(steps), lambda k: steps.start + steps.step * k)

    def rows(self, func: Any, args: Any, kwargs: Any) -> Any:
        """What `for row in x` walks where x has a symbolic number of rows; None of any other call."""
        if func not in _ROWS or self.now is not None or not args:
            return None
        x = args[0]
        dim = (args[1] if len(args) > 1 else kwargs.get("dim", 0)) % max(x.dim(), 1)
        if x.dim() == 0 or isinstance(x.shape[dim], int):
            return None
        return Walked(self, x.shape[dim], lambda k: x.select(dim, k))

    def turned(self, func: Any, args: Any, kwargs: Any) -> Any:
        """A roll by one place in a step as two slices, whose places need no division; None of any other call."""
        if func not in _ROLLS or self.now is None:
            return None
        x = args[0]
        shifts, dims = (_listed(_argument(args, kwargs, k, name)) for k, name in ((1, "shifts"), (2, "dims")))
        if not all(isinstance(d, int) for d in dims) or not all(s in (1, -1) for s in shifts) or not dims:
            return None
        for shift, dim in zip(shifts, dims, strict=True):
            at = x.shape[dim] - 1 if shift == 1 else 1
            x = torch.cat([x.narrow(dim, at, x.shape[dim] - at), x.narrow(dim, 0, at)], dim)
        return x

    def walk(self, count: Any, item: Callable[[int], Any]) -> Iterator[Any]:
        """The items of the traced steps; what walks in turn with another, in a zip, is the same loop."""
        self._asked()
        frame = sys._getframe(1)
        mine = self.now is None
        if mine:
            self.counts.append(count)
        loop = len(self.counts) - 1
        if not mine and (self._by != (frame, _instruction(frame)) or self.now != (loop, 0)):
            raise CaptureError(
                f"Line {frame.f_lineno} begins a loop over a Dim in another.",
                "Write the inner loop over whole tensors, or fix its extent.",
            )
        if not bool(self.counts[loop] == count):
            raise CaptureError(
                f"Line {frame.f_lineno} walks tensors of different lengths at once.", "Cut them to one length first."
            )
        try:
            for step in range(TRACED):
                self.now, self._by = (loop, step), (frame, _instruction(frame))
                yield item(step)
                self._asked()
        finally:
            if mine:
                self.now = self._by = None

    def _asked(self) -> None:
        """Raises CaptureError where no loop asks for the next number: sum() and list() would see a few alone."""
        frame = sys._getframe(2)
        if frame.f_code.co_code[_instruction(frame)] != _NEXT:
            raise CaptureError(
                f"Line {frame.f_lineno} takes all numbers or rows along a Dim at once, and how many is not known.",
                "Walk them by `for`, or write what is made of them with torch.arange or as a formula of the size.",
            )

    def marked(self, line: int) -> Any:
        """The context in which nodes of a trace say the line and the step that made them."""
        return traceback.annotate({"line": line} | ({} if self.now is None else {"step": self.now}))

    def keep(self, result: Any) -> Any:
        """``result``, remembered as the current step's."""
        if self.now is not None:
            for tensor in result if isinstance(result, (tuple, list)) else (result,):
                if isinstance(tensor, (torch.Tensor, Pair)):
                    self._made[id(tensor)] = (tensor, self.now)
        return result

    def kept(self) -> list[Any]:
        """The outputs of the trace that only keep steps whole."""
        return [tensor for tensor, _ in self._made.values()] if self._keeps_all else []

    def joined(self, func: Any, args: Any, kwargs: Any, line: int) -> Any:
        """What stack or cat makes of what all steps of one loop appended, one a step, in the loop's whole length, with
        what the list held before and after; None of anything else."""
        if self.now is not None or not self.counts or func not in _JOINS:
            return None
        tensors = args[0] if args else kwargs.get("tensors")
        dim = args[1] if len(args) > 1 else kwargs.get("dim", kwargs.get("axis", 0))
        appended = [at for at, tensor in enumerate(tensors) if id(tensor) in self._made]
        if not appended or appended[-1] - appended[0] != len(appended) - 1:
            return None
        head, tail = tensors[: appended[0]], tensors[appended[-1] + 1 :]
        tensors = tensors[appended[0] : appended[-1] + 1]
        marks = [self._made[id(t)][1] for t in tensors]
        steps = [step for _, step in marks]
        if len({loop for loop, _ in marks}) != 1 or steps not in _ORDERS or len(marks) != len(tensors):
            return None
        count, is_new = self.counts[marks[0][0]], _JOINS[func]
        shape = list(tensors[0].shape)
        dim %= len(shape) + is_new
        # pieces of several rows are stacked, and the two dimensions joined
        pieces = not is_new and shape[dim] != 1
        is_new = is_new or pieces
        filled = tensors[0].new_zeros((*shape[:dim], count, *shape[dim + (not is_new) :]))
        for tensor, mark in sorted(zip(tensors, marks, strict=True), key=lambda pair: pair[1]):
            # a list that runs against the steps has the last one's first of all
            place = mark[1] if steps == _ORDERS[0] else count - 1 - mark[1]
            self.now = mark
            with self.marked(line):
                filled = torch.select_scatter(filled, tensor if is_new else tensor.squeeze(dim), dim, place)
            self.now = None
        if pieces:
            with self.marked(line):
                filled = filled.flatten(dim, dim + 1)
        around = [func(part, dim) if part else None for part in (head, tail)]
        parts = [part for part in (around[0], filled, around[1]) if part is not None]
        return filled if len(parts) == 1 else torch.cat(parts, dim)


def _argument(args: Any, kwargs: Any, k: int, name: str) -> Any:
    return args[k] if len(args) > k else kwargs.get(name)


def _instruction(frame: FrameType) -> int:
    """Where the instruction begins that a frame is at."""
    code, at = frame.f_code.co_code, frame.f_lasti
    while at > 0 and code[at] == _CACHE:
        at -= 2
    return at


def _listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, (tuple, list)) else (value,)


@dataclass(frozen=True)
class Walked:
    """What a loop over a symbolic number of items walks."""

    loops: Loops
    count: Any
    item: Callable[[Any], Any]

    def __iter__(self) -> Iterator[Any]:
        return self.loops.walk(self.count, self.item)

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, slice):
            first, end = at.start or 0, 0 if at.stop is None else at.stop
            if at.step not in (None, 1) or first < 0 or (end >= 0 and at.stop is not None):
                raise CaptureError(
                    f"Line {sys._getframe(1).f_lineno} cuts a list along a Dim otherwise than [a:], [:-b] or [a:-b].",
                    "Cut the tensor, then walk its rows.",
                )
            return Walked(self.loops, self.count - first + end, lambda k: self.item(first + k))
        return self.item(self.count + at if isinstance(at, int) and at < 0 else at)

    def __reversed__(self) -> Iterator[Any]:
        return iter(Walked(self.loops, self.count, lambda k: self.item(self.count - 1 - k)))
