"""Tracing of a few steps of each loop over a Dim or a long range, with the step in the mark of every node."""

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

#: number of steps that are traced
TRACED = 4
#: orders of the steps in a list that is joined
_ORDERS = [*range(TRACED)], [*reversed(range(TRACED))]
_JOINS = {torch.stack: True, torch.cat: False, torch.concat: False, torch.concatenate: False}
#: functions that `for row in x` calls
_ROWS = (torch.Tensor.unbind, torch.unbind)
_ROLLS = (torch.Tensor.roll, torch.roll)
#: the instruction that begins a step, in a `for` as in a comprehension
_NEXT = dis.opmap["FOR_ITER"]
#: inline caches after instructions in Python from 3.11; a generator's caller is seen there from 3.12
_CACHE = dis.opmap.get("CACHE", -1)


class Loops:
    """The loops of one trace over symbolic numbers, and over fixed ranges of at least ``least`` steps.

    ``most``: largest number of torch calls. ``keeps_all``: values that steps compute are outputs of the trace, since
    torch drops those that none of the few traced steps reads, although a later step may need them.
    """

    def __init__(self, least: int, most: int, keeps_all: bool = False) -> None:
        self._least, self.most, self._keeps_all = least, most, keeps_all
        #: the current loop and step
        self.now: tuple[int, int] | None = None
        #: number of steps of each loop
        self.counts: list[Any] = []
        #: the frame and the instruction that iterate over the current loop
        self._by: tuple[Any, int] | None = None
        #: tensors created by steps, by their ids
        self._made: dict[int, tuple[Any, tuple[int, int]]] = {}

    def range(self, *args: Any) -> Any:
        """Replace Python's range if one of its numbers is symbolic."""
        start, stop, step = (0, *args, 1) if len(args) == 1 else (*args, 1)[:3]
        if not isinstance(step, int):
            return range(*map(int, args))  # a trace that holds at a single size is refused
        span = stop - start if step > 0 else start - stop
        count = span if abs(step) == 1 else (span + abs(step) - 1) // abs(step)
        return Walked(self, count, lambda k: start + step * k)

    def plain_range(self, *args: Any) -> Any:
        """Replace Python's range of plain numbers."""
        steps = range(*args)
        if self.now is not None or len(steps) < self._least:
            return steps
        return Walked(self, len(steps), lambda k: steps.start + steps.step * k)

    def rows(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Return the iterable for `for row in x` if x has a symbolic number of rows; None for any other call."""
        if func not in _ROWS or self.now is not None or not args:
            return None
        x = args[0]
        dim = (args[1] if len(args) > 1 else kwargs.get("dim", 0)) % max(x.dim(), 1)
        if x.dim() == 0 or isinstance(x.shape[dim], int):
            return None
        return Walked(self, x.shape[dim], lambda k: x.select(dim, k))

    def turned(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Return a roll by one place in a step as two slices, whose bounds need no division; None for any other
        call."""
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
        """Yield the items of the traced steps; an iterable that advances together with another (zip) is the same
        loop."""
        self._asked()
        frame = sys._getframe(1)
        is_outer = self.now is None
        if is_outer:
            self.counts.append(count)
        loop = len(self.counts) - 1
        if not is_outer and (self._by != (frame, _instruction(frame)) or self.now != (loop, 0)):
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
            if is_outer:
                self.now = self._by = None

    def _asked(self) -> None:
        """Raise CaptureError if the next number is not requested by a loop: sum() and list() would see only a few."""
        frame = sys._getframe(2)
        if frame.f_code.co_code[_instruction(frame)] != _NEXT:
            raise CaptureError(
                f"Line {frame.f_lineno} takes all numbers or rows along a Dim at once, and how many is not known.",
                "Walk them by `for`, or write what is made of them with torch.arange or as a formula of the size.",
            )

    def marked(self, line: int) -> Any:
        """Return the context in which nodes of a trace record the line and the step that created them."""
        return traceback.annotate({"line": line} | ({} if self.now is None else {"step": self.now}))

    def keep(self, result: Any) -> Any:
        """Return ``result``, and remember it as the current step's."""
        if self.now is not None:
            for tensor in result if isinstance(result, (tuple, list)) else (result,):
                if isinstance(tensor, (torch.Tensor, Pair)):
                    self._made[id(tensor)] = (tensor, self.now)
        return result

    def kept(self) -> list[Any]:
        """Return the additional outputs of the trace, which only keep steps complete."""
        return [tensor for tensor, _ in self._made.values()] if self._keeps_all else []

    def joined(self, func: Any, args: Any, kwargs: Any, line: int) -> Any:
        """Return the result of stack or cat for values that all steps of one loop appended, one per step, in the loop's
        full length, including the list's items before and after; None for other calls. A step appends what it makes
        or what the step before has made."""
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
        # a list of what each step begins with: the value from before the loop, and those of all steps but the last
        if steps == _ORDERS[0][:-1] and head:
            head, tensors, steps = head[:-1], [head[-1], *tensors], _ORDERS[0]
            marks = [(marks[0][0], step) for step in steps]
        elif steps == _ORDERS[1][1:] and tail:
            tensors, tail, steps = [*tensors, tail[0]], tail[1:], _ORDERS[1]
            marks = [(marks[0][0], step) for step in steps]
        if len({loop for loop, _ in marks}) != 1 or steps not in _ORDERS or len(marks) != len(tensors):
            return None
        count, is_new = self.counts[marks[0][0]], _JOINS[func]
        shape = list(tensors[0].shape)
        dim %= len(shape) + is_new
        # pieces of several rows are stacked, and the two dimensions merged
        pieces = not is_new and shape[dim] != 1
        is_new = is_new or pieces
        filled = tensors[0].new_zeros((*shape[:dim], count, *shape[dim + (not is_new) :]))
        for tensor, mark in sorted(zip(tensors, marks, strict=True), key=lambda pair: pair[1]):
            # a list in reverse order begins with the last step's value
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
    """Return the start of the instruction that a frame is at."""
    code, at = frame.f_code.co_code, frame.f_lasti
    while at > 0 and code[at] == _CACHE:
        at -= 2
    return at


def _listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, (tuple, list)) else (value,)


@dataclass(frozen=True)
class Walked:
    """The iterable of a loop over a symbolic number of items."""

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
