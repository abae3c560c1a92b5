"""The share of a call's work that is done by the candidate's own code, counted by the judge."""

from __future__ import annotations

import contextlib
import math
import random
import statistics
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernellab.verifier.own.counters import Sample, Sampler, Unseen
from kernellab.verifier.own.objects import Kind, computes, copied_from, kind_of, library_of, may_be_copied
from kernellab.verifier.protocol.memory import Unreadable, lay_out, read_bytes
from kernellab.verifier.protocol.rules import HONEST
from kernellab.verifier.timing.contents import Contents, loose_arguments

if TYPE_CHECKING:
    from kernellab.verifier.cases.cases import Case
    from kernellab.verifier.stages.candidate import Stages


@dataclass(frozen=True)
class Counted:
    """What program counters showed: looks that found own code, each library's, all looks; seconds of a call.

    ``unseen`` says why nothing can be told of them, where nothing can.
    """

    own: int = 0
    libraries: tuple[tuple[str, int], ...] = ()
    all: int = 0
    seconds: float = 0.0
    unseen: str = ""

    @property
    def library(self) -> int:
        return sum(n for _, n in self.libraries)

    @property
    def share(self) -> float:
        """Own code's part of what computes."""
        return self.own / max(self.own + self.library, 1)

    @property
    def told(self) -> bool:
        """Are they enough to say something?"""
        return not self.unseen and self.own + self.library >= HONEST.samples_least

    @property
    def leans(self) -> bool:
        """Is the library's part more than is allowed, beyond chance and beyond what handling tensors takes?"""
        if not self.told:
            return False
        n = self.own + self.library
        spread = HONEST.sample_errors * math.sqrt(max(self.share * (1 - self.share), 1 / n) / n)
        seconds = self.library / max(self.all, 1) * self.seconds
        return self.share + spread < HONEST.own_share and seconds > HONEST.library_seconds


def counted(stages: Stages, case: Case, only_moves: bool = False) -> Counted:
    """Looks at calls on ever new contents of the form of ``case``, made as timed calls are. Where the task
    ``only_moves`` data, a library's copies are its work.

    Raises:
        WorkerFailure: the candidate fails.
    """
    worker, layout = stages.worker, lay_out(case.args)
    contents = Contents(stages.task, case.args, loose_arguments(stages.task, case.args))
    worker.write(0, layout, case.args)
    seconds: list[float] = []
    try:
        sampler = Sampler(worker)
    except Unseen as unseen:
        return Counted(unseen=str(unseen))
    with sampler:
        # one call at least: on a busy machine the time may be over before the first begins
        end = time.monotonic() + HONEST.sample_seconds
        while not seconds or (time.monotonic() < end and len(sampler.looks) < HONEST.samples and not sampler.refused):
            deadline = stages.context.left(stages.call_deadline(case))
            seconds.append(worker.call(layout, (0,), deadline, late=contents.next()).seconds)
    return found_in(sampler, statistics.median(seconds), only_moves)


def found_in(sampler: Sampler, seconds: float, only_moves: bool = False) -> Counted:
    """What a sampler's looks at calls of so many seconds tell. A look at which any thread was in a library's code is
    the library's, however many others there were."""
    if sampler.refused:
        return Counted(unseen=sampler.refused)
    scratch = str(sampler.worker.scratch)
    kinds = {s: kind_of(s.path, s.place, scratch) for look in sampler.looks for s in look}
    # a library that writes code at run time (oneDNN) calls it itself
    made = {s for s, kind in kinds.items() if kind is Kind.OWN and s.caller and computes(s.caller)}
    copied = _copied([s for s, kind in kinds.items() if kind is Kind.OWN and s not in made])
    libraries: Counter[str] = Counter()
    theirs = (Kind.LIBRARY, Kind.MOVE) if only_moves else (Kind.LIBRARY,)
    own = 0
    for look in sampler.looks:
        names = [
            library_of(s.caller) if s in made
            else library_of(s.path) if kinds[s] in theirs
            else copied.get((s.pid, s.path), "")
            for s in look
        ]  # fmt: skip
        name = next((n for n in names if n), "")
        if name:
            libraries[name] += 1
        elif any(kinds[s] is Kind.OWN for s in look):
            own += 1
    return Counted(own, tuple(libraries.most_common(4)), len(sampler.looks), seconds)


def _copied(samples: Sequence[Sample]) -> dict[tuple[int, str], str]:
    """By process and path, the library whose code an object is that was taken for the candidate's own."""
    by_object: dict[tuple[int, str], list[Sample]] = {}
    for sample in samples:
        by_object.setdefault((sample.pid, sample.path), []).append(sample)
    names: dict[tuple[int, str], str] = {}
    for key, found in by_object.items():
        if any(s.mapped is not None and may_be_copied(s.mapped) for s in found):
            places = random.SystemRandom().sample(found, min(HONEST.sample_pieces, len(found)))
            with contextlib.suppress(Unreadable):
                code = [bytes(read_bytes(s.pid, s.address, HONEST.sample_bytes).numpy()) for s in places]
                names[key] = copied_from(code)
    return names
