"""Checks of the outputs of timed calls: compared outside the clock, in float64 only if necessary."""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from kernellab.task import Task
from kernellab.verifier.cases import answers, device
from kernellab.verifier.cases.judged import Comparison, case_of
from kernellab.verifier.judge.placement import cores_in_order
from kernellab.verifier.judge.process import WorkerFailure
from kernellab.verifier.protocol.rules import TIMING
from kernellab.verifier.timing.sides import DishonestWhenTimed, WrongWhenTimed


class Checks:
    """Compares outputs of timed calls with the reference, outside the clock."""

    def __init__(self, comparison: Comparison, size: int) -> None:
        self.comparison = comparison
        self.task = comparison.task
        #: are all outputs compared, given ``size`` bytes of inputs that are written together?
        self.all = size <= TIMING.check_all_bytes
        self.done = 0
        self._every = len(cores_in_order())
        self._chosen = 0
        self._random = random.Random(secrets.randbits(64))
        #: seconds of one run of the reference, by number of threads
        self._took: dict[int, float] = {}

    def wanted(self) -> bool:
        """Should a call's outputs be compared? Always for little data, otherwise for the first and a random third."""
        is_wanted = self.all or not self._chosen or self._random.random() < 1 / 3
        self._chosen += is_wanted
        return is_wanted

    def wanted_of(self, calls: int, last: bool) -> list[int]:
        """The calls of one go whose outputs are compared: all for little data, otherwise the first, the last and a
        secret random third; for a go of one call, in a third of the goes and in the ``last``."""
        if self.all:
            return list(range(calls))
        if calls == 1:
            return [0] if self.wanted() or last else []
        return [i for i in range(calls) if i in (0, calls - 1) or self._random.random() < 1 / 3]

    def check(self, args: tuple[Any, ...], outputs: Sequence[Tensor]) -> None:
        """Compare as the stage correct does, by every rule. Raises WrongWhenTimed; WorkerFailure if the outputs differ
        from the reference's in number, shapes or dtypes."""
        native, seconds = self._reference(args)
        self.done += 1
        unlike = self.comparison.unlike(outputs, native)
        if unlike is not None:
            raise WorkerFailure("output", f"in a timed call {unlike.message}")
        wrong = self.comparison.first_wrong(case_of(self.task, args, native, seconds), outputs)
        if wrong is not None:
            raise WrongWhenTimed(wrong)

    def check_with(self, args: tuple[Any, ...], outputs: Sequence[Tensor], theirs: Sequence[Tensor]) -> None:
        """As :meth:`check`, against what a baseline's worker has just computed for the same contents, then against
        float64's answer; the reference runs at the declared dtype only if neither is close."""
        if self.comparison.as_theirs(outputs, theirs) or self.comparison.as_exact(args, outputs):
            self.done += 1
        else:
            self.check(args, outputs)

    def _reference(self, args: tuple[Any, ...]) -> tuple[tuple[Tensor, ...], float]:
        """The reference's outputs, and the seconds that it took. Uses one thread or all, whichever was faster when
        tried: on a busy machine one has priority over other work, but a team waits for its slowest thread."""
        if device.current() == "cuda":
            return answers.run_reference(self.task, args), 0.0
        untried = [n for n in (self._every, 1) if n not in self._took]
        threads = untried[0] if untried else min(self._took, key=lambda n: self._took[n])
        start = time.perf_counter()
        native = answers.run_reference(self.task, args, threads)
        self._took[threads] = time.perf_counter() - start
        return native, self._took[threads]


def lies_wrong(output: int, in_input: bool) -> DishonestWhenTimed:
    """The refusal of an output number of a timed call that lies in an input, or overlaps itself."""
    if in_input:
        return DishonestWhenTimed("aliases-input", f"output {output} of a timed call is a view of an input")
    message = f"output {output} of a timed call has elements that share memory"
    return DishonestWhenTimed("overlaps-itself", message)


def writes_input(task: Task, position: int) -> DishonestWhenTimed:
    """The refusal of a timed call that changed the argument at ``position``."""
    return DishonestWhenTimed("mutates-input", f"a timed call changes its input {task.args[position].name!r}")


def reference_shares(task: Task, args: Sequence[Any], output: int) -> bool:
    """Is the reference's own output in an input, or in less memory than it has elements? True where the reference has
    no such output: a wrong number of outputs is refused as that."""
    outputs, inside = task.module().called(tuple(args))
    if output >= len(outputs):
        return True
    native = outputs[output]
    storage = native.untyped_storage()
    return _source(native, inside) is not None or storage.nbytes() < native.numel() * native.element_size()


def sources(task: Task, args: Sequence[Any]) -> list[int | None]:
    """Return for each output of the reference the position of the argument whose memory it is in; None for new
    memory, and for outputs without elements."""
    outputs, inside = task.module().called(tuple(args))
    return [_source(o, inside) if o.numel() else None for o in outputs]


def _source(output: torch.Tensor, args: Sequence[Any]) -> int | None:
    place = output.untyped_storage().data_ptr()
    for position, value in enumerate(args):
        if isinstance(value, torch.Tensor) and value.untyped_storage().data_ptr() == place:
            return position
    return None
