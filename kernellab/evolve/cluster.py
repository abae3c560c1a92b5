"""The jobs of a search on a Dask cluster: preparing on CPUs, measuring alone on each device.

A worker that measures offers the resource ``device``, as many as it has devices; whatever needs one asks for one, so
that a device times one candidate at a time. What a worker that died had in hand is given to another by Dask.
"""

from __future__ import annotations

import logging
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import Future
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

from kernellab.errors import EvolveError, TargetError
from kernellab.evolve import jobs
from kernellab.evolve.jobs import Job, Prepared, Ranked
from kernellab.evolve.judges import LocalJudge
from kernellab.evolve.records import Evaluation
from kernellab.records import Verdict
from kernellab.verifier.judge import turns

T = TypeVar("T")

#: what a worker offers for each device that it may time on
DEVICE = "device"
#: deaths of workers that one job may see before it is given up: the job may be their cause
_DEATHS = 3


class DaskWorkers:
    """``where`` is ``local``, ``local:N`` (N processes here) or ``dask://HOST:PORT``.

    Raises:
        EvolveError: the extra is not installed, the word is wrong, the cluster cannot be reached or has no device.
    """

    def __init__(self, where: str, devices: int = 1) -> None:
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._cluster: Any = None
        self._client = self._connected(where, devices)
        found = self._client.scheduler_info(n_workers=-1)["workers"].values()
        measuring = sum(int(worker["resources"].get(DEVICE, 0)) for worker in found)
        if not measuring:
            self.close()
            raise EvolveError(
                f"No worker of {where} offers a device to measure on.",
                f"Start workers with `dask worker HOST:PORT --resources '{DEVICE}=1'`.",
            )
        #: enough that each device finds a prepared candidate waiting
        self.room = sum(worker["nthreads"] for worker in found) + measuring

    def evaluate(self, job: Job) -> Future[Evaluation]:
        prepared = self._client.submit(_prepare, job, pure=False, retries=_DEATHS)
        return self._bridged(self._submit(_finish, prepared))

    def rank(self, job: Job) -> Future[Ranked]:
        return self._bridged(self._submit(_rank, job))

    def verify(self, job: Job) -> Future[Verdict]:
        return self._bridged(self._submit(_verify, job))

    def close(self) -> None:
        self._client.close()
        if self._cluster is not None:
            self._cluster.close()
        if self._folder is not None:
            self._folder.cleanup()

    def _submit(self, work: Callable[..., Any], *args: Any) -> Any:
        return self._client.submit(work, *args, pure=False, resources={DEVICE: 1}, retries=_DEATHS)

    def _bridged(self, future: Any) -> Future[Any]:
        """A Dask future as one of the standard library, which the scheduler waits for."""
        ours: Future[Any] = Future()
        ours.set_running_or_notify_cancel()

        def settle(done: Any) -> None:
            try:
                ours.set_result(done.result())
            except BaseException as error:
                ours.set_exception(_told(error))

        future.add_done_callback(settle)
        return ours

    def _connected(self, where: str, devices: int) -> Any:
        try:
            client: Any = import_module("distributed").Client
        except ImportError:
            raise EvolveError(
                "A search on a cluster takes Dask, which is not installed.", "pip install 'kernellab[cluster]'."
            ) from None
        kind, _, rest = where.partition(":")
        if kind == "local" and (not rest or rest.isdigit()):
            self._cluster = self._local(int(rest or 2), devices)
            return client(self._cluster)
        if kind == "dask" and rest.startswith("//"):
            try:
                return client(f"tcp:{rest}", timeout=10)
            except OSError as error:
                raise EvolveError(
                    f"No Dask scheduler answers at {rest[2:]}: {error}", "Start one with `dask scheduler`."
                ) from None
        raise EvolveError(f"There is no cluster {where!r}.", "Write local, local:4 or dask://HOST:8786.")

    def _local(self, processes: int, devices: int) -> Any:
        """Processes of this machine; the first ``devices`` of them measure, each on a GPU of its own where there is
        one. They take turns at the clock, so that nothing is built while a CPU kernel is timed."""
        dask: Any = import_module("distributed")
        self._folder = tempfile.TemporaryDirectory(prefix="kernellab-cluster-")
        many = devices > 1
        specs = {}
        for at in range(max(processes, devices)):
            turn = Path(self._folder.name) / f"turns-{at if many and at < devices else 0}"
            environment = {turns.VARIABLE: f"{'device' if many else 'all'}:{turn}"}
            if many and at < devices:
                environment["CUDA_VISIBLE_DEVICES"] = str(at)
            specs[at] = {
                "cls": dask.Nanny,
                "options": {
                    "nthreads": 1,
                    "resources": {DEVICE: 1} if at < devices else {},
                    "env": environment,
                    "memory_limit": 0,
                    "silence_logs": logging.ERROR,
                },
            }
        scheduler = {"cls": dask.Scheduler, "options": {"dashboard": False, "port": 0, "host": "127.0.0.1"}}
        # what Dask says of its own start and end would stand under a person's cell
        logging.getLogger("distributed").setLevel(logging.ERROR)
        return dask.SpecCluster(workers=specs, scheduler=scheduler, silence_logs=logging.ERROR)


_judge: LocalJudge | None = None
_making = threading.Lock()


def _own_judge() -> LocalJudge:
    """A worker's judge, which stays warm."""
    global _judge
    with _making:
        _judge = _judge or LocalJudge()
        return _judge


def _prepare(job: Job) -> Prepared:
    with turns.working(designing=True):
        return jobs.prepare(job)


def _finish(prepared: Prepared) -> Evaluation:
    return jobs.finish(prepared, _own_judge())


def _rank(job: Job) -> Ranked:
    return jobs.rank(job, _own_judge())


def _verify(job: Job) -> Verdict:
    return jobs.verify(job, _own_judge())


def _told(error: BaseException) -> BaseException:
    """A worker's error as one that a run ends with: its class and words are kept, Dask's own are explained."""
    if type(error).__name__ == "KilledWorker":
        return TargetError(
            f"{_DEATHS + 1} workers died at one candidate.", "See the workers' logs; drop the candidate and go on."
        )
    return error


__all__ = ["DEVICE", "DaskWorkers"]
