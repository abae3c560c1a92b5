"""Ever new contents of one shape for timed calls, made from a base set that the task itself gave."""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kernellab.task import ArgKind, Task
from kernellab.verifier import device
from kernellab.verifier.rules import TIMING

if TYPE_CHECKING:
    import torch

    Tensor = torch.Tensor

#: elements from which a tensor is mixed in pieces
_LARGE = 1 << 20


class Contents:
    """Ever new contents of one shape: a base set, its rows rotated, a random sixteenth of each tensor drawn again
    from the tensor's own values. Integers are what the task's own inputs are for another seed, all of one seed, since
    one may count another's places. Arguments marked static and structured rows keep what they are."""

    def __init__(self, task: Task, args: Sequence[Any], loose: Sequence[bool]) -> None:
        self.base = args
        free = [not spec.static and spec.kind is ArgKind.TENSOR for spec in task.args]
        self.loose = [a and b for a, b in zip(loose, free, strict=True)]
        whole = [is_whole(a) and b for a, b in zip(args, free, strict=True)]
        self.random = random.Random(secrets.randbits(64))
        self._buffers: dict[tuple[int, int], Tensor] = {}
        self._whole = Drawn(task, args, whole, self.random) if any(whole) else None

    def next(self, buffer: int = 0) -> tuple[Any, ...]:
        """New contents; those that were made before in the same ``buffer`` are gone."""
        base = self._whole.next() if self._whole else self.base
        return tuple(
            self._fresh(a, (buffer, i)) if loose else a
            for i, (a, loose) in enumerate(zip(base, self.loose, strict=True))
        )

    def _fresh(self, base: Tensor, key: tuple[int, int]) -> Tensor:
        import torch

        flat = base.reshape(-1)
        count = flat.numel()
        if count < 2:
            # a lone number must change too, within the sign that it has
            return base * self.random.uniform(0.5, 1.5)
        turn = self.random.randrange(1, count)
        new = self._buffers.get(key)
        if new is None:
            new = self._buffers[key] = torch.empty_like(flat)
        new[: count - turn], new[count - turn :] = flat[turn:], flat[:turn]
        part = max(1, count // TIMING.fresh)
        start = self.random.randrange(0, count - part + 1)
        # of much, pieces as long as a cache's line: single numbers from all over memory take ten times as long
        length = 16 if count >= _LARGE else 1
        lines = flat[: count // length * length].view(-1, length)
        generator = torch.Generator().manual_seed(self.random.getrandbits(63))
        picked = torch.randint(len(lines), (-(-part // length),), generator=generator)
        scale = self.random.uniform(0.9, 1.0)
        torch.mul(lines.index_select(0, picked).view(-1)[:part], scale, out=new[start : start + part])
        return new.reshape(base.shape)


class Drawn:
    """Sets of arguments whose integers (``whole``) are drawn anew by the task's own inputs, as long as that takes no
    more than its share of a measurement; then those that were drawn come again in random order."""

    def __init__(self, task: Task, args: Sequence[Any], whole: Sequence[bool], draw: random.Random) -> None:
        self.task, self.whole, self.random = task, whole, draw
        self.sizes = task.module().default_sizes()
        self.sets: list[tuple[Any, ...]] = [tuple(args)]
        #: bytes of one set's integers, and what drawing took so far (s)
        self.size = sum(a.nbytes for a, w in zip(args, whole, strict=True) if w)
        self.seconds = 0.0

    def next(self) -> tuple[Any, ...]:
        first = self.sets[0]
        if self.seconds < TIMING.drawing and len(self.sets) * self.size < TIMING.drawn_bytes:
            began = time.perf_counter()
            drawn = device.sample(self.task.module(), self.sizes, self.random.getrandbits(31), device.current())
            if all(_alike(a, b, w) for a, b, w in zip(first, drawn, self.whole, strict=True)):
                self.sets.append(tuple(b if w else a for a, b, w in zip(first, drawn, self.whole, strict=True)))
            self.seconds += time.perf_counter() - began
            return self.sets[-1]
        return self.random.choice(self.sets)


def _alike(first: Any, drawn: Any, whole: bool) -> bool:
    """Can ``drawn`` stand beside the others in its place, or stand in for ``first``?"""
    if whole:
        return bool(first.shape == drawn.shape and first.dtype == drawn.dtype)
    return hasattr(first, "shape") or first == drawn


def is_whole(value: Any) -> bool:
    """Is it a tensor of integers or bools, with anything in it?"""
    import torch

    kind = isinstance(value, torch.Tensor) and not value.is_floating_point() and not value.is_complex()
    return kind and value.numel() > 0


def loose_arguments(task: Task, args: Sequence[Any]) -> list[bool]:
    """Which arguments may be mixed freely: floats whose support is a set of single numbers, closed under shrinking."""
    import torch

    from kernellab.task_inputs import Support, legal_values

    found = []
    for spec, arg in zip(task.args, args, strict=True):
        if not isinstance(arg, torch.Tensor) or not arg.is_floating_point() or not arg.numel():
            found.append(False)
            continue
        legal = legal_values(spec, arg, task.domain.get(spec.name))
        free = legal.support in (Support.REAL, Support.NONNEGATIVE, Support.NONPOSITIVE, Support.UNIT)
        found.append(free and not legal.is_sorted)
    return found
