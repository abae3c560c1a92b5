"""A session's access to the memory."""

from __future__ import annotations

from kernellab.memory.memory import Memory
from kernellab.session.engine.driver import Driver
from kernellab.session.memory_export import offer
from kernellab.session.record.journal import Journal
from kernellab.session.turn.context import Bench


class SessionMemory:
    """One session's access to the memory."""

    def __init__(self, driver: Driver, bench: Bench, journal: Journal) -> None:
        self._driver, self._bench, self._journal = driver, bench, journal

    @property
    def store(self) -> Memory | None:
        """The memory that the session queries; None if it is off, does not exist, or failed."""
        recall = self._bench.recall()
        return recall.memory if recall else None

    @property
    def fault(self) -> str:
        """Why the memory is not used, in a sentence with its remedy; "" if it works or is off."""
        return self._bench.memory_fault

    def remember(self) -> int:
        """Store the session's verified kernels in the workspace's memory. Return the number of new kernels.

        Raises:
            MemoryStoreError, TaskError, CaptureError.
        """
        return offer(self.store or Memory.open(self._journal.workspace), self._driver.state, asked=True)
