"""A run as a monitor knows it: a separate fold over the run's stream, and which candidates changed when.

The stream is followed whoever works on the run, this kernel or another process: what is shown is what was written.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable
from pathlib import Path

from kernellab.evolve.fold import apply_event, fold
from kernellab.evolve.records import (
    Action,
    Evaluated,
    Event,
    Proposed,
    Remeasured,
    RoundEnded,
    Steered,
    Unknown,
    Verified,
)
from kernellab.evolve.stream import Stream


class Follower:
    """``state`` is changed by :meth:`update` alone; ``lock`` is held while it changes, and by whoever reads it on
    another thread."""

    def __init__(self, workspace: Path, run: str) -> None:
        """Raises EvolveError: there is no such run; JournalError."""
        self.run = run
        self.lock = threading.RLock()
        self.version = 0
        #: evaluations at each round's end
        self.round_ends: list[int] = []
        #: candidates in the order in which they were evaluated, from 1
        self.places: dict[int, int] = {}
        self._stream = Stream(workspace, run)
        self._changed: OrderedDict[int, int] = OrderedDict()
        events = self._stream.read()
        self.state = fold(events[:1]) if events else self._stream.state()
        for seq, event in events[1:]:
            self._take(seq, event)

    def update(self) -> bool:
        """Read what is new. Was there anything? Raises JournalError."""
        events = self._stream.read(self.state.seq)
        with self.lock:
            for seq, event in events:
                self._take(seq, event)
        return bool(events)

    def changed(self, since: int, most: int) -> tuple[list[int], int]:
        """Candidates that changed after version ``since``, those that changed first first, at most ``most`` of them;
        and the version of the last."""
        newer = []
        for number, version in reversed(self._changed.items()):
            if version <= since:
                break
            newer.append((number, version))
        newer.reverse()
        part = newer[:most]
        return [number for number, _ in part], part[-1][1] if part else self.version

    def close(self) -> None:
        self._stream.close()

    def _take(self, seq: int, event: Event | Unknown) -> None:
        apply_event(self.state, seq, event)
        if isinstance(event, RoundEnded):
            self.round_ends.append(len(self.state.evaluations))
        if isinstance(event, Evaluated):
            self.places.setdefault(event.evaluation.number, len(self.places) + 1)
        self._mark(_touched(event))

    def _mark(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            self.version += 1
            self._changed[number] = self.version
            self._changed.move_to_end(number)


def _touched(event: Event | Unknown) -> Iterable[int]:
    """Candidates whose rows an event changes."""
    match event:
        case Proposed(proposals=proposals):
            return [p.number for p in proposals]
        case Evaluated(evaluation=evaluation):
            return [evaluation.number]
        case Verified(number=number):
            return [number]
        case Remeasured(scores=scores):
            return scores
        case Steered(action=action, number=number) if number is not None and action in (Action.PROTECT, Action.DROP):
            return [number]
    return []
