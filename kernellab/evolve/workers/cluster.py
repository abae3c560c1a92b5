"""Runs the jobs of a search on a Dask cluster: preparing and building on CPUs, measuring alone on each device.

A worker that measures has the resource ``device``, which such jobs require. Several workers of one device take turns
to measure (:mod:`kernellab.verifier.judge.turns`), so that one candidate is timed while others are built. Dask moves
the jobs of a dead worker to another.
"""

from __future__ import annotations

import logging
import os
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import Any

from kernellab.dsls.machine import gpu_products
from kernellab.errors import EvolveError, TargetError, WorkersLost
from kernellab.evolve import jobs
from kernellab.evolve.jobs import Job, Prepared, Ranked
from kernellab.evolve.records import Begun, Evaluation, Step
from kernellab.evolve.workers.judges import LocalJudge, LocalWorkers, local_judges
from kernellab.records import Verdict
from kernellab.target import Target
from kernellab.verifier.judge import turns
from kernellab.verifier.remote import DEVICE, connected

log = logging.getLogger("kernellab.evolve")

#: The resource of a worker that only prepares candidates while the devices time others.
BUILD = "build"
#: Number of such workers per GPU, if the machine has enough cores.
_BUILDERS = 2
#: Attempts to start a local cluster if one of its processes dies.
_STARTS = 3
#: Number of worker deaths after which a job is given up, as it may be their cause.
_DEATHS = 3
#: Polling interval in seconds.
_LOOK = 1.0
#: A candidate is late after this many seconds, and after this many times the median duration of the recent ones.
_LATE_SECONDS, _LATE_RATIO = 60.0, 8.0
#: Number of durations without which none is late, and of those that are recent.
_LEAST_DURATIONS, _RECENT = 5, 50
#: The HTTP servers of Dask's processes are local only, and have no pages.
_NO_PAGES = {"dashboard": False, "dashboard_address": "127.0.0.1:0"}
_NO_ROUTES: dict[str, Any] = {f"distributed.{who}.http.routes": [] for who in ("scheduler", "worker")}
_DIED = f"{_DEATHS + 1} workers died at it."
#: Dask's names of errors of futures without a scheduler.
_GONE = ("CancelledError", "FutureCancelledError", "FuturesCancelledError", "CommClosedError", "TimeoutError")


@dataclass(eq=False)
class _Work:
    """Work in progress: the caller's future, how it is submitted to Dask, and Dask's futures: two if it was late."""

    result: Future[Any]
    submit: Callable[[], Any]
    #: The candidate to evaluate, if the work may be submitted again.
    job: Job | None
    began: float = field(default_factory=time.monotonic)
    dask_futures: list[Any] = field(default_factory=list)


class DaskWorkers:
    """Workers on a cluster. ``where`` is ``local``, ``local:N`` (N processes here) or ``dask://HOST:PORT``; the
    processes of ``local`` share this machine's GPUs if kernels run ``on_gpu``.

    Raises:
        EvolveError: the extra is not installed, the spec is invalid, or the cluster is unreachable or has no device.
    """

    def __init__(self, where: str, on_gpu: bool = False) -> None:
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._lock, self._ended = threading.Lock(), threading.Event()
        self._under_way: set[_Work] = set()
        self._durations: list[float] = []
        self._cluster: Any = None
        self._client = self._connected(where, on_gpu)
        workers_by_address = self._client.scheduler_info(n_workers=-1)["workers"]
        workers = workers_by_address.values()
        self._devices = [address for address, worker in workers_by_address.items() if worker["resources"].get(DEVICE)]
        self._build = BUILD if any(worker["resources"].get(BUILD) for worker in workers) else ""
        self._warming: list[Any] = []
        self.judges = sum(int(worker["resources"].get(DEVICE, 0)) for worker in workers)
        if not self.judges:
            self.close()
            raise EvolveError(
                f"No worker of {where} offers a device to measure on.",
                f"Start workers with `dask worker HOST:PORT --resources '{DEVICE}=1'`.",
            )
        #: Large enough that each device always has a prepared candidate waiting.
        self.room = sum(worker["nthreads"] for worker in workers) + self.judges
        threading.Thread(target=self._watch, name="kernellab-cluster", daemon=True).start()

    def start(self, begun: Begun) -> None:
        """Start every device's judge, before there is a candidate."""
        self._everywhere(_start, begun)

    def warm(self, job: Job) -> None:
        """Warm every device's judge with a candidate of the task, which also builds the reference and eager."""
        self._everywhere(_rank, job)

    def _everywhere(self, function: Callable[..., Any], argument: Any) -> None:
        for address in self._devices:
            with suppress(Exception):  # the first candidate warms a worker that is missing here
                future = self._client.submit(
                    function, argument, pure=False, retries=_DEATHS, priority=1, resources={DEVICE: 1},
                    workers=[address],
                )  # fmt: skip
                self._warming.append(future)

    def evaluate(self, job: Job) -> Future[Evaluation]:
        return self._future(lambda: self._submit(_finish, self._submit(jobs.prepare, job, self._build)), job)

    def rank(self, job: Job) -> Future[Ranked]:
        return self._future(lambda: self._submit(_rank, job))

    def verify(self, job: Job) -> Future[Verdict]:
        return self._future(lambda: self._submit(_verify, job))

    def compare(self, job: Job, other: Job) -> Future[Verdict]:
        return self._future(lambda: self._submit(_compare, (job, other)))

    def call_off(self) -> None:
        """Do nothing: running measurements finish, and the others serve the next jobs."""

    def close(self) -> None:
        self._ended.set()
        with suppress(Exception):  # the scheduler may be gone already
            self._client.close()
        if self._cluster is not None:
            self._cluster.close()
        if self._folder is not None:
            self._folder.cleanup()

    def _submit(self, function: Callable[..., Any], argument: Any, resource: str = DEVICE) -> Any:
        """Raises WorkersLost."""
        try:
            options = {"resources": {resource: 1}} if resource else {}
            return self._client.submit(function, argument, pure=False, retries=_DEATHS, **options)
        except Exception as error:  # Dask's error of a client without a scheduler has no stable name
            if self._client.status == "running":
                raise
            raise _lost(error) from None

    def _future(self, submit: Callable[[], Any], job: Job | None = None) -> Future[Any]:
        """Return a standard future for work at Dask; give ``job`` if it may be submitted again."""
        work = _Work(Future(), submit, job)
        with self._lock:
            self._under_way.add(work)
        work.result.add_done_callback(partial(self._cancelled, work))
        self._submit_to_dask(work)
        return work.result

    def _submit_to_dask(self, work: _Work) -> None:
        work.dask_futures.append(dask_future := work.submit())
        dask_future.add_done_callback(partial(self._settle, work))

    def _cancelled(self, work: _Work, result: Future[Any]) -> None:
        """Cancel the work if its caller no longer waits for it."""
        if result.cancelled() and self._claimed(work):
            _cancel(work.dask_futures)

    def _claimed(self, work: _Work) -> bool:
        """Claim a piece of work. Return True for the first caller, which ends it."""
        with self._lock:
            is_first = work in self._under_way
            self._under_way.discard(work)
        return is_first

    def _settle(self, work: _Work, dask_future: Any) -> None:
        """Set the caller's future from the first result."""
        if not self._claimed(work) or not work.result.set_running_or_notify_cancel():
            return
        try:
            value = dask_future.result()
        except BaseException as error:
            if work.job is not None and type(error).__name__ == "KilledWorker":
                work.result.set_result(_fatal(work.job))
            else:
                work.result.set_exception(_ending(error))
            return
        self._durations.append(time.monotonic() - work.began)
        work.result.set_result(value)

    def _watch(self) -> None:
        """Resubmit a candidate that takes far longer than others, and fail all work when the client is closed."""
        while not self._ended.wait(_LOOK):
            with self._lock:
                works = list(self._under_way)
            if self._client.status == "closed":
                for work in works:
                    if self._claimed(work) and work.result.set_running_or_notify_cancel():
                        work.result.set_exception(_lost("closed"))
            elif len(self._durations) >= _LEAST_DURATIONS:
                latest_start = time.monotonic() - max(_LATE_SECONDS, _LATE_RATIO * median(self._durations[-_RECENT:]))
                for work in works:
                    if work.job is not None and len(work.dask_futures) == 1 and work.began < latest_start:
                        with suppress(WorkersLost):
                            self._submit_to_dask(work)
                        if work.result.cancelled():  # cancelled meanwhile, by a callback that did not know this future
                            _cancel(work.dask_futures)

    def _connected(self, where: str, on_gpu: bool) -> Any:
        try:
            client: Any = import_module("distributed").Client
            if where.partition(":")[0] == "local":
                import_module("cryptography")  # a local cluster needs it to make its key
        except ImportError as error:
            raise EvolveError(
                f"A search on a cluster needs {error.name}, which is not installed.",
                "pip install 'kernellab[cluster]'.",
            ) from None
        # Dask's own messages would appear below a person's cell; errors are reported by kernellab
        for name in ("distributed", "distributed.client"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
        kind, _, rest = where.partition(":")
        if kind == "local" and (not rest or rest.isdigit()):
            self._cluster = self._local(int(rest or 2), _visible() if on_gpu else [])
            return client(self._cluster)
        if kind == "dask" and rest.startswith("//"):
            return connected(rest[2:])
        raise EvolveError(f"There is no cluster {where!r}.", "Write local, local:4, dask://HOST:8786 or ssh://HOST.")

    def _local(self, processes: int, gpus: list[str]) -> Any:
        """Start processes on this machine, each with its own judge, so that they build and check in parallel. Those of
        one device take turns to measure; on a CPU nothing is built while a kernel is timed."""
        dask: Any = import_module("distributed")
        config: Any = import_module("dask.config")
        # a connection to a Dask port can run code in its workers: only this process has the key, made for this cluster
        common = {"security": dask.Security.temporary(), "host": "127.0.0.1", **_NO_PAGES}
        self._folder = tempfile.TemporaryDirectory(prefix="kernellab-cluster-")
        specs = {}
        measuring = max(processes, len(gpus))
        spare_cores = (os.cpu_count() or 1) - measuring - 1
        builder_count = min(_BUILDERS * len(gpus), max(0, spare_cores))
        for i in range(measuring + builder_count):
            device = gpus[i % len(gpus)] if gpus else ""
            environment = {turns.VARIABLE: f"{'device' if gpus else 'all'}:{Path(self._folder.name, 'turns' + device)}"}
            if gpus:
                environment["CUDA_VISIBLE_DEVICES"] = device
            specs[i] = {
                "cls": dask.Nanny,
                "options": {
                    **common, "nthreads": 1, "resources": {DEVICE if i < measuring else BUILD: 1}, "env": environment,
                    "memory_limit": 0, "silence_logs": logging.ERROR,
                },
            }  # fmt: skip
        scheduler = {"cls": dask.Scheduler, "options": {**common, "port": 0}}
        for attempt in range(1, _STARTS + 1):
            try:
                with config.set(_NO_ROUTES):
                    return dask.SpecCluster(
                        workers=specs, scheduler=scheduler, security=common["security"], silence_logs=logging.ERROR
                    )
            except Exception as error:  # a process ended while it started
                if attempt == _STARTS:
                    raise EvolveError(
                        f"The workers of this machine do not start: {type(error).__name__}: {error}",
                        "Leave out --cluster, or see that nothing ends them.",
                    ) from error
                log.warning("A worker died before it had started; all are started again.")
        raise AssertionError


def workers_for(cluster: str, target: Target, room: int) -> DaskWorkers | LocalWorkers:
    """Return a search's workers: ``cluster``, or threads of this process with ``room`` candidates in progress.

    Raises:
        EvolveError: see :class:`DaskWorkers`.
    """
    if cluster:
        return DaskWorkers(cluster, target.chip.kind == "gpu")
    return LocalWorkers(local_judges(target), room)


def _cancel(futures: list[Any]) -> None:
    for dask_future in futures:
        with suppress(Exception):  # a lost scheduler has nothing to cancel
            dask_future.cancel()


def _visible() -> list[str]:
    """The GPUs that this process may use, by their names in CUDA_VISIBLE_DEVICES."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    return [name.strip() for name in visible.split(",") if name.strip()] or [str(n) for n in range(len(gpu_products()))]


_judge: LocalJudge | None = None
_making = threading.Lock()


def _own_judge() -> LocalJudge:
    """The worker's judge, which stays warm."""
    global _judge
    with _making:
        _judge = _judge or LocalJudge()
        return _judge


def _start(begun: Begun) -> None:
    jobs.start(begun, _own_judge())


def _finish(prepared: Prepared) -> Evaluation:
    return jobs.finish(prepared, _own_judge())


def _rank(job: Job) -> Ranked:
    return jobs.rank(job, _own_judge())


def _verify(job: Job) -> Verdict:
    return jobs.verify(job, _own_judge())


def _compare(pair: tuple[Job, Job]) -> Verdict:
    return jobs.compare(pair, _own_judge())


def _fatal(job: Job) -> Evaluation:
    """The evaluation of a candidate that kills its workers: it fails, and the run continues."""
    return Evaluation(number=job.number, key=job.key, passed=False, step=Step.RANK, reason=_DIED)


def _ending(error: BaseException) -> BaseException:
    """Convert a worker's error to one that ends a run: its class and text are kept, Dask's own are explained."""
    name = type(error).__name__
    if name == "KilledWorker":
        return TargetError(_DIED, "See the workers' logs; drop the candidate and go on.")
    return _lost(name) if name in _GONE else error


def _lost(why: object) -> WorkersLost:
    return WorkersLost(
        f"The cluster is gone ({why}).", "Start it again, and go on with `kernellab evolve --resume RUN --cluster ...`."
    )


__all__ = ["DEVICE", "DaskWorkers", "workers_for"]
