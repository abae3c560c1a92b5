"""Who takes part in a timed run on a CUDA device: the candidate and the baselines, each with its goes so far."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from kernellab.verifier.cuda.reports import TimedCalls
from kernellab.verifier.cuda.worker_client import DeviceAccess
from kernellab.verifier.judge.process import WorkerFailure
from kernellab.verifier.judge.worker_client import Worker
from kernellab.verifier.timing.sides import BaselineFailed, Side, Team, teams

#: least remainder of a single go (s); the median is trusted only far above this
LEAST_SECONDS = 1e-9


@dataclass
class DeviceTeam(Team):
    """A side on the device, with the times of its goes; ``seconds`` are per call, without the handshake."""

    #: seconds of the judge's own kernel after each answer
    tails: list[float] = field(default_factory=list)
    #: seconds from go to answer, for each go
    gross: list[float] = field(default_factory=list)
    #: bytes of one call's outputs
    output_bytes: int = 0
    #: relative difference between two bursts of traced calls
    drift: float = 0.0

    @property
    def first(self) -> DeviceAccess:
        """The worker whose calls are traced."""
        return device_access(self.worker)

    @property
    def accesses(self) -> list[DeviceAccess]:
        return [device_access(worker) for worker in self.workers]

    def add(self, calls: TimedCalls, handshake: float, maker: int) -> None:
        """Record one go of the worker number ``maker``; ``handshake`` is in seconds of a go."""
        self.seconds.append(max((calls.seconds - handshake) / calls.calls, LEAST_SECONDS))
        self.claimed.append(calls.answer.seconds / calls.calls)
        self.waited.append(0.0)
        self.disturbed.append(False)
        self.gross.append(calls.seconds)
        self.tails.append(calls.tail)
        self.maker.append(maker)

    def lengthen(self, seconds: float, calls: int) -> None:
        """Add this many seconds to each go of ``calls`` calls."""
        self.seconds = [s + seconds / calls for s in self.seconds]
        self.gross = [g + seconds for g in self.gross]

    def retime(self, seconds: list[float]) -> None:
        """Replace the figures by another clock's samples (s of a call)."""
        self.seconds = seconds
        self.waited, self.disturbed = [0.0] * len(seconds), [False] * len(seconds)


class Participants:
    """All sides of one run, the candidate's first."""

    def __init__(self, candidate: Side, baselines: Sequence[Side]) -> None:
        self.candidate = teams([candidate], DeviceTeam)[0]
        self.baselines = teams(baselines, DeviceTeam)
        self.sides = [self.candidate, *self.baselines]
        self.accesses = [access for side in self.sides for access in side.accesses]
        self.pids = [access.worker.pid for access in self.accesses]
        self._names = {id(access): side.name for side in self.sides for access in side.accesses}

    @contextmanager
    def blaming(self, access: DeviceAccess) -> Iterator[None]:
        """While entered, report a failure of a baseline's worker as the baseline's."""
        try:
            yield
        except WorkerFailure as failure:
            if access is self.candidate.first:
                raise
            raise BaselineFailed(self._names[id(access)], failure) from failure


def device_access(worker: Worker) -> DeviceAccess:
    """The access to a worker that uses a device."""
    assert isinstance(worker.access, DeviceAccess)
    return worker.access
