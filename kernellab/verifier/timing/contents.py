"""Contents of one shape for timed calls that no side has seen before: no two sets are equal, in any domain."""

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

#: tensors from this size on are mixed in pieces as long as a cache line: single numbers from all over memory take ten
#: times as long
_LARGE, _LINE = 1 << 14, 16
#: number of elements that a tensor's fingerprint samples, and the same on a device, from which they are copied
_FINGERPRINT_ELEMENTS, _FINGERPRINT_COPIED = 1 << 16, 1 << 13
#: an integer argument with fewer elements may be in order by chance
_MIN_ORDERED = 16
#: where contents may be mixed, the share of sets that are drawn nevertheless: so that drawing costs a call these
#: seconds on average, and at least this share
_DRAW_SECONDS, _DRAWN_LEAST = 4e-3, 0.25
#: whether a task's reference accepts mixed contents of these shapes; for the last ``_REMEMBERED`` keys. The contents
#: that test this are in ``_TEST_BUFFER``
_ACCEPTS_MIXED: dict[tuple[Any, ...], bool] = {}
_REMEMBERED, _TEST_BUFFER = 1 << 8, 1 << 10


class Contents:
    """New contents of one shape for each call. Each set comes from one of two sources, mixing and drawing.

    Floats that may be any numbers of a sign are mixed, if the reference accepts such sets: lines from all over the
    first set, each scaled by a separate factor, so that earlier contents do not reveal a sum of new ones. If any other
    tensor may change (integers, masks, probabilities, sorted or complex numbers), all of the task's own inputs are
    drawn with a new seed, since one argument may count another's elements. Arguments marked static and a model's
    parameters are the same for all calls.

    A kernel can recognize earlier lines, even if they were scaled. So with ``redraws`` a secret share of the sets that
    could be mixed is drawn instead; all of them if drawing takes no time.
    """

    def __init__(self, task: Task, args: Sequence[Any], loose: Sequence[bool], redraws: bool = False) -> None:
        self.base = tuple(args)
        self.free = [
            not spec.static and spec.kind is ArgKind.TENSOR and isinstance(a, torch.Tensor) and a.numel() > 0
            for spec, a in zip(task.args, args, strict=True)
        ]
        self._buffers: dict[tuple[int, int], Tensor] = {}
        self._generators: dict[str, torch.Generator] = {}
        self.loose = [a and b for a, b in zip(loose, self.free, strict=True)]
        if any(self.loose) and not self._accepts_mixed(task):
            self.loose = [False] * len(self.loose)
        #: the task's own inputs, if some of what may change cannot be mixed: then all sets are drawn
        self._inputs = Inputs(task, self.base, self.free) if self.loose != self.free else None
        self._fingerprints: set[int] = set()
        #: number of sets equal to an earlier one: a task whose inputs are the same for every seed
        self.repeated = 0
        self._warming: dict[int, tuple[Any, ...]] = {}
        #: the last timed sets, beginning with one that was timed before the next block
        self._last_timed: deque[tuple[Any, ...]] = deque([self.base] * (TIMING.block_calls + 1), TIMING.block_calls + 1)
        #: was the last set drawn, not mixed?
        self.drawn = self._inputs is not None
        self._random = random.Random(secrets.randbits(64))
        #: where sets are mixed: the task's own inputs, and the share of sets that are drawn nevertheless
        self._redraws, self._chance = self._drawing(task) if redraws and self._inputs is None else (None, 0.0)

    @property
    def seconds(self) -> float:
        """Seconds spent so far on drawing the task's own inputs."""
        return self._inputs.seconds if self._inputs is not None else 0.0

    def _accepts_mixed(self, task: Task) -> bool:
        """Does the reference accept mixed contents? (Mixed elements do not form a positive definite matrix, for
        example.) Evaluated once for each task and form."""
        shapes = tuple(tuple(a.shape) if isinstance(a, torch.Tensor) else () for a in self.base)
        key = (task.text, task.name, device.current(), shapes)
        if key not in _ACCEPTS_MIXED:
            pairs = enumerate(zip(self.base, self.loose, strict=True))
            mixed = tuple(self._mixed(a, (_TEST_BUFFER, i)) if loose else a for i, (a, loose) in pairs)
            try:
                task.module().results(mixed)
                _ACCEPTS_MIXED[key] = True
            except TaskError:
                _ACCEPTS_MIXED[key] = False
            while len(_ACCEPTS_MIXED) > _REMEMBERED:
                del _ACCEPTS_MIXED[next(iter(_ACCEPTS_MIXED))]
            self._buffers.clear()
        return _ACCEPTS_MIXED[key]

    def _drawing(self, task: Task) -> tuple[Inputs | None, float]:
        """The task's own inputs, and the share of sets to draw; (None, 0) if they are the same for each seed."""
        if not any(self.free):
            return None, 0.0
        inputs = Inputs(task, self.base, self.free)
        first, again = ([a for a, free in zip(s, self.free, strict=True) if free] for s in (self.base, inputs.next()))
        if fingerprint(first) == fingerprint(again):
            return None, 0.0
        return inputs, max(_DRAWN_LEAST, _DRAW_SECONDS / inputs.seconds)

    def next(self, buffer: int = 0, timed: bool = True) -> tuple[Any, ...]:
        """New contents; those mixed earlier in the same ``buffer`` are overwritten. Contents that are not ``timed`` are
        never returned by :meth:`uncounted` later."""
        for _ in range(TIMING.max_redraws):
            self.drawn = self._inputs is not None or self._random.random() < self._chance
            if self._redraws is not None and self.drawn:
                contents = self._redraws.next()
            else:
                contents = self._mixed_or_drawn(buffer)
            count = len(self._fingerprints)
            self._fingerprints.add(fingerprint([a for a, free in zip(contents, self.free, strict=True) if free]))
            if len(self._fingerprints) > count:
                break
        else:
            self.repeated += 1
        if timed:
            self._last_timed.append(contents)
        return contents

    def uncounted(self, buffer: int = 0) -> tuple[Any, ...]:
        """Contents for uncounted calls; they cost nothing to make, and will not be timed later: a kernel that stores
        its answers must not find one there."""
        return self._last_timed[0] if self._inputs is not None else self._mixed_or_drawn(buffer)

    def warming(self, number: int = 0) -> tuple[Any, ...]:
        """As :meth:`uncounted`, the same for a ``number`` until :meth:`refresh`: for calls that only warm pages, teams
        and caches, which a kernel may recognize as such."""
        if number not in self._warming:
            # in separate buffers, since timed contents replace those in the others
            self._warming[number] = self.uncounted(-1 - number)
        return self._warming[number]

    def refresh(self) -> None:
        """Make :meth:`warming` return other contents from here on."""
        self._warming = {}

    def _mixed_or_drawn(self, buffer: int) -> tuple[Any, ...]:
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
        # a single number is only scaled, and keeps its sign
        low, wide = (0.5, 1.0) if count < 2 else (0.9, 0.1)
        factors = torch.rand(len(lines) + 1, 1, generator=generator, device=base.device).mul_(wide).add_(low)
        factors = factors.to(base.dtype)
        if base.device.type == "cpu" and base.dtype != torch.bfloat16:
            # takes half the time of torch's
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
    """Sets of arguments from the task's own inputs, with a new seed for each."""

    def __init__(self, task: Task, args: Sequence[Any], free: Sequence[bool]) -> None:
        self.task, self.first, self.free = task, tuple(args), free
        self.sizes = task.module().default_sizes()
        self.seconds = 0.0

    def next(self) -> tuple[Any, ...]:
        """The arguments of the next seed; static ones stay the same."""
        began = time.perf_counter()
        drawn = device.sample(self.task.module(), self.sizes, secrets.randbits(31), device.current())
        contents = tuple(
            b if free and a.shape == b.shape and a.dtype == b.dtype else a
            for a, b, free in zip(self.first, drawn, self.free, strict=True)
        )
        self.seconds += time.perf_counter() - began
        return contents


def fingerprint(tensors: Sequence[Tensor]) -> int:
    """A checksum that two sets of contents share only if they are equal, or nearly everywhere; for large tensors it
    samples elements from all over."""
    checksum = 0
    for tensor in tensors:
        flat = torch.view_as_real(tensor).reshape(-1) if tensor.is_complex() else tensor.reshape(-1)
        limit = _FINGERPRINT_ELEMENTS if flat.device.type == "cpu" else _FINGERPRINT_COPIED
        sample = flat[:: max(1, flat.numel() // limit)].contiguous().cpu()
        checksum = zlib.crc32(sample.view(torch.uint8).numpy().data, checksum)
    return checksum


def loose_arguments(task: Task, args: Sequence[Any]) -> list[bool]:
    """Which arguments may be mixed freely: floats whose support is a set of single numbers, closed under scaling down
    (not float8, which torch does not compute in)."""
    legal = legal_of(task, args, device.current())
    return [
        domain is not None and domain.support in (*OPEN, Support.UNIT) and not domain.is_sorted and not is_float8(arg)
        for domain, arg in zip(legal, args, strict=True)
    ]


def independent(args: Sequence[Any], others: Sequence[Any], position: int) -> bool:
    """Are the integers or bools of an argument drawn independently, as far as two draws of all arguments show? Sorted
    places, permutations, counts with a fixed sum, masks of one form, symmetric tables, and beginnings below another
    argument's ends are not: one of these cannot change without the others."""
    value, other_value = args[position], others[position]
    if not _is_whole(value) or value.numel() < _MIN_ORDERED:
        return False
    values, other_values = computable(value).long(), computable(other_value).long()
    if values.shape != other_values.shape or bool(values.sum() == other_values.sum()):
        return False
    for dim in range(values.dim()):
        steps = values.diff(dim=dim)
        if steps.numel() and (bool((steps >= 0).all()) or bool((steps <= 0).all())):
            return False
    # rows that are each in order, as in a mask of lengths
    steps = values.diff(dim=-1)
    if steps.numel() and bool(((steps >= 0).all(-1) | (steps <= 0).all(-1)).all()):
        return False
    if any(_ordered(value, b) and _ordered(other_value, others[i]) for i, b in enumerate(args) if i != position):
        return False
    return values.dim() < 2 or values.shape[-1] != values.shape[-2] or not bool(torch.equal(values, values.mT))


def _is_whole(value: Any) -> bool:
    return isinstance(value, Tensor) and not value.is_floating_point() and not value.is_complex()


def _ordered(one: Any, two: Any) -> bool:
    """Are integers of one shape nowhere above others, or nowhere below, although their ranges overlap?"""
    if not _is_whole(two) or one.shape != two.shape or torch.bool in (one.dtype, two.dtype):
        return False
    a, b = computable(one).long(), computable(two).long()
    overlap = bool(a.max() > b.min()) and bool(b.max() > a.min())
    return overlap and (bool((a <= b).all()) or bool((a >= b).all()))


def distinct_dims(value: Tensor) -> list[int]:
    """The dimensions along which integers are never equal, like the places that a row selects."""
    if value.dtype == torch.bool:
        return []
    whole = computable(value).long()
    dims = [dim for dim in range(value.dim()) if value.shape[dim] > 1]
    return [dim for dim in dims if not bool((whole.sort(dim).values.diff(dim=dim) == 0).any())]
