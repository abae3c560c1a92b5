"""Single looks at a worker's program counters, each in a separate uncounted call among the timed ones.

A kernel may notice that its threads were halted for a moment. Its work in that call has been observed by then; it must
learn nothing about the next call. So each call is drawn independently to be looked at or not: after a look as likely as
after a timed call. The inputs of both are equally new and prepared in advance, and the looking thread sleeps until the
call has begun. The share of looks that find a library is then on average, whatever a kernel's strategy, the share of
the timed calls that a library does.
"""

from __future__ import annotations

import random
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING

from kernellab.verifier.attribution.counters import Sampler
from kernellab.verifier.attribution.share import count_looks
from kernellab.verifier.judge.placement import before_all
from kernellab.verifier.protocol.rules import TIMING

if TYPE_CHECKING:
    from kernellab.verifier.judge.worker_client import Worker


class Looks:
    """A thread of the judge that, while entered, looks once at each call inside :meth:`at`.

    Raises Unseen if registers cannot be read.
    """

    def __init__(self, worker: Worker, only_moves: bool = False) -> None:
        self.worker = worker
        self.only_moves = only_moves
        self.sampler = Sampler(worker)
        self._random = random.Random(secrets.randbits(64))
        self._begun, self._done = threading.Event(), threading.Event()
        self._over = False
        #: time when the call began, delay of the look (s), and number of timed calls that the look stands for
        self._start = self._after = self._weight = 0.0

    def __enter__(self) -> Looks:
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._over = True
        self._begun.set()
        self._thread.join()

    def next(self) -> bool:
        """Is the next call one with a look? Drawn independently each time."""
        chance = self._chance
        self._weight = (1 - chance) / chance
        return not self.sampler.refused and self._random.random() < chance

    @property
    def _chance(self) -> float:
        chances = TIMING.look_chances
        return chances.first if len(self.sampler.looks) < TIMING.frequent_looks else chances.later

    @contextmanager
    def at(self, usual: float) -> Iterator[None]:
        """Look at the call inside, at a random instant of the ``usual`` seconds that one takes."""
        self._after = self._random.random() * usual
        self._begun.clear()
        self._done.clear()
        before = self.worker.asked
        self.worker.on_go = self._go
        try:
            yield
        finally:
            self.worker.on_go = None
            if self.worker.asked > before:
                self._done.wait(TIMING.look_seconds)

    def unsure(self, usual: float) -> bool:
        """Have most looks at calls of ``usual`` seconds found a library, with too few looks to estimate the share?"""
        counts = count_looks(self.sampler, usual, self.only_moves)
        return not counts.is_conclusive and not counts.unseen and counts.library > counts.own

    def _go(self) -> None:
        self._start = time.perf_counter()
        self._begun.set()

    def _run(self) -> None:
        # computing threads may keep every core, with their own priority
        before_all(threading.get_native_id())
        while True:
            self._begun.wait()
            if self._over:
                return
            self._begun.clear()
            time.sleep(max(0.0, self._start + self._after - time.perf_counter()))
            if self.worker.computing:
                self.sampler.look(self._weight)
            self._done.set()
