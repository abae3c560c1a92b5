"""Requests to models that are under way, while candidates are evaluated: a model's answer keeps no device waiting."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from queue import SimpleQueue

from kernellab.evolve.records import Worked
from kernellab.evolve.vary.mix import Ask, Reply
from kernellab.models.exchanges import Step

#: requests that are sent at once; more wait for these
_MOST = 64
#: characters of what an agent did
_SHOWN = 400


@dataclass
class Asking:
    """Sends requests on its own threads; their replies are taken in the order in which they came."""

    #: set at the end, so that no request outlives its run
    cancel: threading.Event = field(default_factory=threading.Event)
    #: what agents have done since the last look
    _steps: SimpleQueue[Worked] = field(default_factory=SimpleQueue)
    _under: dict[Future[Reply], str] = field(default_factory=dict)
    _pool: ThreadPoolExecutor | None = None

    @property
    def futures(self) -> list[Future[Reply]]:
        return list(self._under)

    @property
    def operators(self) -> list[str]:
        """Those by which the requests under way are asked."""
        return list(self._under.values())

    def send(self, asks: Sequence[Ask]) -> None:
        if asks and self._pool is None:
            self._pool = ThreadPoolExecutor(_MOST, thread_name_prefix="kernellab-ask")
        for ask in asks:
            assert self._pool is not None
            self._under[self._pool.submit(ask.send)] = ask.operator

    def told(self, who: str, step: Step) -> None:
        """From any thread: an agent did something."""
        text = ": ".join(filter(None, (step.title or step.kind, step.result or step.text)))
        self._steps.put(Worked(who=who, text=text[:_SHOWN], step=step.kind))

    def steps(self) -> list[Worked]:
        """What agents have done since the last time."""
        return [self._steps.get() for _ in range(self._steps.qsize())]

    def replies(self) -> list[Reply]:
        """Those that have come since the last time."""
        done = [future for future in self._under if future.done()]
        for future in done:
            del self._under[future]
        return [future.result() for future in done]

    def close(self) -> None:
        self.cancel.set()
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
