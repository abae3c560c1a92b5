"""What others used of the machine while a measurement ran."""

from __future__ import annotations

import time
from collections.abc import Sequence

from kernellab.verifier.judge import process_stats
from kernellab.verifier.judge.worker_client import Worker


class MachineUse:
    """The share of the machine that others used since this object was made."""

    def __init__(self, workers: Sequence[Worker], cores: Sequence[int]) -> None:
        self._workers, self._cores = workers, cores
        self._busy, self._used = process_stats.busy(cores), self._ours()
        self._ticks = process_stats.ticks()
        self._pressure, self._time = process_stats.pressure(), time.monotonic()

    def _ours(self) -> float:
        """Processor seconds that the workers and this process have used."""
        return sum(worker.used() for worker in self._workers) + time.process_time()

    def others(self) -> float | None:
        """Seconds for which other processes, or a hypervisor's other machines, used the cores; None if unknown."""
        now = process_stats.busy(self._cores)
        if now is None or self._busy is None:
            return None
        return max(now - self._busy - (self._ours() - self._used), 0.0)

    def taken(self, waits_are_counted: bool) -> float:
        """The share that the hypervisor gave to others; where waits are not counted for each process, at least the
        share of the time in which any process waited."""
        now = process_stats.ticks()
        share = (now.stolen - self._ticks.stolen) / max(now.total - self._ticks.total, 1)
        return share if waits_are_counted else max(share, self.pressed())

    def pressed(self) -> float:
        """The share of the time in which some process of the machine waited for a core."""
        return min((process_stats.pressure() - self._pressure) / max(time.monotonic() - self._time, 1e-3), 1.0)
