"""Pending requests to models, while candidates are evaluated: a model's answer does not block a device."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from queue import SimpleQueue

from kernellab.evolve.records import Worked
from kernellab.evolve.vary.mix import Ask, Reply
from kernellab.models.exchanges import Step

#: Maximum number of parallel requests; others wait.
_MOST = 64
#: Maximum characters of an agent's step.
_SHOWN = 400


@dataclass
class Asking:
    """Sends requests on its own threads; returns their replies in the order of arrival."""

    #: Set at the end, so that no request outlives its run.
    cancel: threading.Event = field(default_factory=threading.Event)
    #: Agents' steps since the last call.
    _steps: SimpleQueue[Worked] = field(default_factory=SimpleQueue)
    _under: dict[Future[Reply], str] = field(default_factory=dict)
    _pool: ThreadPoolExecutor | None = None

    @property
    def futures(self) -> list[Future[Reply]]:
        return list(self._under)

    @property
    def operators(self) -> list[str]:
        """The operators of the pending requests."""
        return list(self._under.values())

    def send(self, asks: Sequence[Ask]) -> None:
        """Send requests; does not wait."""
        if asks and self._pool is None:
            self._pool = ThreadPoolExecutor(_MOST, thread_name_prefix="kernellab-ask")
        for ask in asks:
            assert self._pool is not None
            self._under[self._pool.submit(ask.send)] = ask.operator

    def told(self, who: str, step: Step) -> None:
        """Record an agent's step; from any thread."""
        text = ": ".join(filter(None, (step.title or step.kind, step.result or step.text)))
        self._steps.put(Worked(who=who, text=text[:_SHOWN], step=step.kind))

    def steps(self) -> list[Worked]:
        """The agents' steps since the last call."""
        return [self._steps.get() for _ in range(self._steps.qsize())]

    def replies(self) -> list[Reply]:
        """The replies that arrived since the last call."""
        done = [future for future in self._under if future.done()]
        for future in done:
            del self._under[future]
        return [future.result() for future in done]

    def close(self) -> None:
        """Cancel the pending requests."""
        self.cancel.set()
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
