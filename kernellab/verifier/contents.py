"""Ever new contents of one shape for timed calls, made from a base set that the task itself gave."""

from __future__ import annotations

import random
import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kernellab.task import ArgKind, Task
from kernellab.verifier.rules import TIMING

if TYPE_CHECKING:
    import torch

    Tensor = torch.Tensor

#: elements from which a tensor is mixed in pieces
_LARGE = 1 << 20


class Contents:
    """Ever new contents of one shape: a base set, its rows rotated, a random sixteenth of each tensor drawn again
    from the tensor's own values. Arguments marked static, integers and structured rows keep what they are."""

    def __init__(self, task: Task, args: Sequence[Any], loose: Sequence[bool]) -> None:
        self.specs = task.args
        self.base = args
        self.loose = loose
        self.random = random.Random(secrets.randbits(64))
        self._buffers: dict[tuple[int, int], Tensor] = {}

    def next(self, buffer: int = 0) -> tuple[Any, ...]:
        """New contents; those that were made before in the same ``buffer`` are gone."""
        return tuple(
            self._fresh(a, (buffer, i)) if loose and not spec.static and spec.kind is ArgKind.TENSOR else a
            for i, (a, loose, spec) in enumerate(zip(self.base, self.loose, self.specs, strict=True))
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
