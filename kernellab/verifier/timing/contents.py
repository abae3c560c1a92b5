"""Contents of one shape for timed calls that no one has met before: no two of them are equal, in whatever domain."""

from __future__ import annotations

import random
import secrets
import time
import zlib
from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kernellab.errors import TaskError
from kernellab.task import ArgKind, Task
from kernellab.task.dtypes import computable, is_float8
from kernellab.task.sample.draw import OPEN, Support
from kernellab.verifier.cases import device
from kernellab.verifier.cases.input_specs import legal_of
from kernellab.verifier.protocol.rules import TIMING

#: elements from which a tensor is mixed in pieces as long as a cache's line: single numbers from all over memory take
#: ten times as long
_LARGE, _LINE = 1 << 14, 16
#: elements of a tensor that its print is taken from, and of one on a device, from which they are copied
_PRINTED, _COPIED = 1 << 16, 1 << 13
#: integers of an argument of which it cannot be said whether they are in order by chance
_FEW = 16
#: where contents may be mixed, the share of those that are drawn nevertheless: so much that drawing costs a call these
#: seconds on average, and at least so much
_DRAW_SECONDS, _DRAWN_LEAST = 4e-3, 0.25
#: does a task's reference take mixed contents of these shapes, of the last so many; the buffer of those that it is
#: asked with
_ANSWERED: dict[tuple[Any, ...], bool] = {}
_REMEMBERED, _ASKED = 1 << 8, 1 << 10


class Contents:
    """Ever new contents of one shape. Each set comes from one of two sources, mixing and drawing.

    Floats that may be any numbers of a sign are mixed, where the reference takes such sets: lines from all over the
    first set, each shrunk by a separate factor, so that nothing known of earlier contents tells a sum of new ones.
    Where any other tensor may change (integers, masks, probabilities, sorted or complex numbers), the task's own inputs
    are drawn with a new seed, all of one, since one argument may count another's places. Arguments marked static and a
    model's parameters are what they are for all calls.

    Lines that were met before can be known again, whatever they were multiplied with. So ``anew`` a secret share of the
    sets that could be mixed is drawn all the same, all of them where that takes no time.
    """

    def __init__(self, task: Task, args: Sequence[Any], loose: Sequence[bool], anew: bool = False) -> None:
        self.base = tuple(args)
        self.free = [
            not spec.static and spec.kind is ArgKind.TENSOR and isinstance(a, torch.Tensor) and a.numel() > 0
            for spec, a in zip(task.args, args, strict=True)
        ]
        self._buffers: dict[tuple[int, int], Tensor] = {}
        self._generators: dict[str, torch.Generator] = {}
        self.loose = [a and b for a, b in zip(loose, self.free, strict=True)]
        if any(self.loose) and not self._is_answered(task):
            self.loose = [False] * len(self.loose)
        #: the task's own inputs, where some of what may change cannot be mixed: then all sets are drawn
        self._inputs = Inputs(task, self.base, self.free) if self.loose != self.free else None
        self._prints: set[int] = set()
        #: sets that were equal to an earlier one: a task whose inputs are the same for every seed
        self.repeated = 0
        self._warming: dict[int, tuple[Any, ...]] = {}
        #: the last timed sets, from one that was timed before the block that comes next
        self._last_timed: deque[tuple[Any, ...]] = deque([self.base] * (TIMING.block + 1), TIMING.block + 1)
        #: was the last set drawn, and not mixed of lines of the first?
        self.drawn = self._inputs is not None
        self._random = random.Random(secrets.randbits(64))
        #: where sets are mixed: the task's own inputs, and the share of the sets that are drawn nevertheless
        self._draws, self._chance = self._drawing(task) if anew and self._inputs is None else (None, 0.0)

    @property
    def seconds(self) -> float:
        """What drawing the task's own inputs took so far."""
        return self._inputs.seconds if self._inputs is not None else 0.0

    def _is_answered(self, task: Task) -> bool:
        """Does the reference take mixed contents? Elements of elsewhere leave no positive definite matrix, say. Asked
        once for each task and form."""
        shapes = tuple(tuple(a.shape) if isinstance(a, torch.Tensor) else () for a in self.base)
        key = (task.text, task.name, device.current(), shapes)
        if key not in _ANSWERED:
            pairs = enumerate(zip(self.base, self.loose, strict=True))
            mixed = tuple(self._mixed(a, (_ASKED, i)) if loose else a for i, (a, loose) in pairs)
            try:
                task.module().results(mixed)
                _ANSWERED[key] = True
            except TaskError:
                _ANSWERED[key] = False
            while len(_ANSWERED) > _REMEMBERED:
                del _ANSWERED[next(iter(_ANSWERED))]
            self._buffers.clear()
        return _ANSWERED[key]

    def _drawing(self, task: Task) -> tuple[Inputs | None, float]:
        """The task's own inputs, and how often they are drawn; none where they are the same for each seed."""
        if not any(self.free):
            return None, 0.0
        inputs = Inputs(task, self.base, self.free)
        first, again = ([a for a, free in zip(s, self.free, strict=True) if free] for s in (self.base, inputs.next()))
        if fingerprint(first) == fingerprint(again):
            return None, 0.0
        return inputs, max(_DRAWN_LEAST, _DRAW_SECONDS / inputs.seconds)

    def next(self, buffer: int = 0, timed: bool = True) -> tuple[Any, ...]:
        """New contents; those that were mixed before in the same ``buffer`` are gone. What is not ``timed`` is never
        :meth:`uncounted` later."""
        for _ in range(TIMING.redrawn):
            self.drawn = self._inputs is not None or self._random.random() < self._chance
            contents = self._draws.next() if self._draws is not None and self.drawn else self._made(buffer)
            seen = len(self._prints)
            self._prints.add(fingerprint([a for a, free in zip(contents, self.free, strict=True) if free]))
            if len(self._prints) > seen:
                break
        else:
            self.repeated += 1
        if timed:
            self._last_timed.append(contents)
        return contents

    def uncounted(self, buffer: int = 0) -> tuple[Any, ...]:
        """Contents for calls that do not count; ones that cost nothing to make, and none that are still to be timed:
        a kernel that keeps its answers must not find one there."""
        return self._last_timed[0] if self._inputs is not None else self._made(buffer)

    def warming(self, number: int = 0) -> tuple[Any, ...]:
        """As :meth:`uncounted`, the same for a ``number`` until :meth:`refresh`: for calls that only make pages, teams
        and caches ready, which a kernel may know for what they are."""
        if number not in self._warming:
            # in separate buffers: timed contents come and go in the others
            self._warming[number] = self.uncounted(-1 - number)
        return self._warming[number]

    def refresh(self) -> None:
        """:meth:`warming` gives other contents from here on."""
        self._warming = {}

    def _made(self, buffer: int) -> tuple[Any, ...]:
        if self._inputs is not None:
            return self._inputs.next()
        pairs = enumerate(zip(self.base, self.loose, strict=True))
        return tuple(self._mixed(a, (buffer, i)) if loose else a for i, (a, loose) in pairs)

    def _mixed(self, base: Tensor, key: tuple[int, int]) -> Tensor:
        flat = base.reshape(-1)
        count = flat.numel()
        new = self._buffers.get(key)
        if new is None:
            new = self._buffers[key] = torch.empty_like(flat)
        generator = self._generator(base)
        length = _LINE if count >= _LARGE else 1
        whole = count // length * length
        lines = flat[:whole].view(-1, length)
        picked = torch.randint(len(lines), (len(lines),), generator=generator, device=base.device)
        # a lone number is only made smaller or larger, within the sign that it has
        low, wide = (0.5, 1.0) if count < 2 else (0.9, 0.1)
        factors = torch.rand(len(lines) + 1, 1, generator=generator, device=base.device).mul_(wide).add_(low)
        factors = factors.to(base.dtype)
        if base.device.type == "cpu" and base.dtype != torch.bfloat16:
            # half the time of torch's
            np.take(lines.numpy(), picked.numpy(), 0, new[:whole].view(-1, length).numpy(), "clip")
        else:
            torch.index_select(lines, 0, picked, out=new[:whole].view(-1, length))
        new[:whole].view(-1, length).mul_(factors[:-1])
        torch.mul(flat[whole:], factors[-1], out=new[whole:])
        return new.reshape(base.shape)

    def _generator(self, like: Tensor) -> torch.Generator:
        where = str(like.device)
        if where not in self._generators:
            self._generators[where] = torch.Generator(like.device).manual_seed(secrets.randbits(63))
        return self._generators[where]


class Inputs:
    """Sets of arguments that the task's own inputs give for one new seed after another."""

    def __init__(self, task: Task, args: Sequence[Any], free: Sequence[bool]) -> None:
        self.task, self.first, self.free = task, tuple(args), free
        self.sizes = task.module().default_sizes()
        self.seconds = 0.0

    def next(self) -> tuple[Any, ...]:
        began = time.perf_counter()
        drawn = device.sample(self.task.module(), self.sizes, secrets.randbits(31), device.current())
        found = tuple(
            b if free and a.shape == b.shape and a.dtype == b.dtype else a
            for a, b, free in zip(self.first, drawn, self.free, strict=True)
        )
        self.seconds += time.perf_counter() - began
        return found


def fingerprint(tensors: Sequence[Tensor]) -> int:
    """A number that two sets of contents share only when they are equal, or nearly everywhere; of large tensors some
    elements from all over are looked at."""
    found = 0
    for tensor in tensors:
        flat = torch.view_as_real(tensor).reshape(-1) if tensor.is_complex() else tensor.reshape(-1)
        most = _PRINTED if flat.device.type == "cpu" else _COPIED
        some = flat[:: max(1, flat.numel() // most)].contiguous().cpu()
        found = zlib.crc32(some.view(torch.uint8).numpy().data, found)
    return found


def loose_arguments(task: Task, args: Sequence[Any]) -> list[bool]:
    """Which arguments may be mixed freely: floats whose support is a set of single numbers, closed under shrinking (not
    float8, in which torch computes nothing)."""
    legal = legal_of(task, args, device.current())
    return [
        found is not None and found.support in (*OPEN, Support.UNIT) and not found.is_sorted and not is_float8(arg)
        for found, arg in zip(legal, args, strict=True)
    ]


def independent(args: Sequence[Any], others: Sequence[Any], position: int) -> bool:
    """Are the integers or bools of an argument drawn each by itself, as far as two draws of all arguments tell? Places
    in order, those of a permutation, counts that add up, masks of one form, symmetric tables, and beginnings below
    another argument's ends are not: one of these cannot change alone."""
    value, other = args[position], others[position]
    if not _is_whole(value) or value.numel() < _FEW:
        return False
    one, two = computable(value).long(), computable(other).long()
    if one.shape != two.shape or bool(one.sum() == two.sum()):
        return False
    for dim in range(one.dim()):
        steps = one.diff(dim=dim)
        if steps.numel() and (bool((steps >= 0).all()) or bool((steps <= 0).all())):
            return False
    # rows of which each is in order, as the mask of a length is
    steps = one.diff(dim=-1)
    if steps.numel() and bool(((steps >= 0).all(-1) | (steps <= 0).all(-1)).all()):
        return False
    if any(_ordered(value, b) and _ordered(other, others[i]) for i, b in enumerate(args) if i != position):
        return False
    return one.dim() < 2 or one.shape[-1] != one.shape[-2] or not bool(torch.equal(one, one.mT))


def _is_whole(value: Any) -> bool:
    return isinstance(value, Tensor) and not value.is_floating_point() and not value.is_complex()


def _ordered(one: Any, two: Any) -> bool:
    """Are integers of one shape nowhere above others, or nowhere below, though their ranges overlap?"""
    if not _is_whole(two) or one.shape != two.shape or torch.bool in (one.dtype, two.dtype):
        return False
    a, b = computable(one).long(), computable(two).long()
    overlap = bool(a.max() > b.min()) and bool(b.max() > a.min())
    return overlap and (bool((a <= b).all()) or bool((a >= b).all()))


def apart(value: Tensor) -> list[int]:
    """The dimensions along which integers are never equal, as the places that a row selects are."""
    if value.dtype == torch.bool:
        return []
    whole = computable(value).long()
    dims = [dim for dim in range(value.dim()) if value.shape[dim] > 1]
    return [dim for dim in dims if not bool((whole.sort(dim).values.diff(dim=dim) == 0).any())]
