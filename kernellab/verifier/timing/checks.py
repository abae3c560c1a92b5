"""Whether the outputs of timed calls are right: compared outside the clock, in float64 only where they must be."""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kernellab.task import Task
from kernellab.task.dtypes import parts
from kernellab.verifier.cases import answers, device
from kernellab.verifier.compare.compare import NUMERIC, Limits, Reference, accepts, compare
from kernellab.verifier.compare.fast_accept import quick
from kernellab.verifier.judge.placement import cores_in_order
from kernellab.verifier.judge.process import WorkerFailure
from kernellab.verifier.protocol.rules import TIMING
from kernellab.verifier.timing.sides import WrongWhenTimed

if TYPE_CHECKING:
    import torch

    Tensor = torch.Tensor


class Checks:
    """Compares outputs of timed calls with the reference, outside the clock."""

    def __init__(self, task: Task, limits: Sequence[Limits], size: int) -> None:
        self.task = task
        self.limits = limits
        #: are all outputs compared, of ``size`` bytes of inputs that are written together?
        self.all = size <= TIMING.check_all_bytes
        self.done = 0
        self._every = len(cores_in_order())
        self._asked = 0
        self._chosen = 0
        self._random = random.Random(secrets.randbits(64))
        #: seconds of one run of the reference, by threads
        self._took: dict[int, float] = {}

    def wanted(self) -> bool:
        """Shall a call's outputs be compared? All of little data, else the first and a random third."""
        found = self.all or not self._chosen or self._random.random() < 1 / 3
        self._chosen += found
        return found

    def wanted_of(self, calls: int, last: bool) -> list[int]:
        """The calls of one go whose outputs are compared: all of little data, else the first and the last and a secret
        random third; of a go of one call a third of the goes, and the ``last``."""
        if self.all:
            return list(range(calls))
        if calls == 1:
            return [0] if self.wanted() or last else []
        return [i for i in range(calls) if i in (0, calls - 1) or self._random.random() < 1 / 3]

    def check(self, args: tuple[Any, ...], outputs: Sequence[Tensor]) -> None:
        """Raises WrongWhenTimed; WorkerFailure where there are more or fewer outputs than the reference has."""
        native = self._reference(args)
        self.done += 1
        if len(outputs) != len(native):
            raise WorkerFailure("output", "a timed call returned another number of outputs")
        for i, (got, want, limits) in enumerate(zip(outputs, native, self.limits, strict=True)):
            self._compare(i, args, got, want, limits)

    def beside(self, args: tuple[Any, ...], outputs: Sequence[Tensor], theirs: Sequence[Tensor]) -> None:
        """As :meth:`check`, against what a baseline's worker has just computed of the same contents; the reference runs
        only where the two are not near."""
        if len(outputs) == len(theirs) and all(map(quick, outputs, theirs, self.limits)):
            self.done += 1
        else:
            self.check(args, outputs)

    def _reference(self, args: tuple[Any, ...]) -> tuple[Tensor, ...]:
        """With one thread or with all, whichever was quicker when tried: on a busy machine one goes before other work,
        but a team waits for its slowest."""
        if device.current() == "cuda":
            return answers.run_reference(self.task, args)
        untried = [n for n in (self._every, 1) if n not in self._took]
        threads = untried[0] if untried else min(self._took, key=lambda n: self._took[n])
        start = time.perf_counter()
        native = answers.run_reference(self.task, args, threads)
        self._took[threads] = time.perf_counter() - start
        return native

    def _compare(self, i: int, args: tuple[Any, ...], got: Tensor, want: Tensor, limits: Limits) -> None:
        if quick(got, want, limits):
            return
        if not (want.is_floating_point() or want.is_complex()):
            self._compare_whole(i, args, got, want, limits)
            return
        # float64 is dear at full size: asked of a few such calls, the rest must be right in every element
        if self._asked >= TIMING.full_checks and accepts(parts(got), parts(want), limits, strict=False) is not None:
            return
        self._asked += 1
        references = answers.references(self.task, args)
        reference = references[i]
        mismatch, _ = compare(got, reference, limits)
        if mismatch is not None and mismatch.rule in NUMERIC:
            mismatch, _ = compare(got, answers.nudged(self.task, args, references)[i], limits)
        if mismatch is not None:
            raise WrongWhenTimed(i, args, got, reference, mismatch)

    def _compare_whole(self, i: int, args: tuple[Any, ...], got: Tensor, want: Tensor, limits: Limits) -> None:
        """Integers and bools that differ, unless ties or roundings on the way leave that open."""
        found = tuple(Reference(w, None) for w in answers.run_reference(self.task, args))
        mismatch, _ = compare(got, answers.settled(self.task, args, found)[i], limits)
        if mismatch is not None:
            raise WrongWhenTimed(i, args, got, Reference(want, None), mismatch)


def reference_shares(task: Task, args: Sequence[Any], output: int) -> bool:
    """Does the reference's own output lie in an input, or in less memory than it has elements?"""
    import torch

    native = answers.run_reference(task, tuple(args))[output]
    held = native.untyped_storage()
    inputs = [a.untyped_storage().data_ptr() for a in args if isinstance(a, torch.Tensor)]
    return held.data_ptr() in inputs or held.nbytes() < native.numel() * native.element_size()
