"""The jobs of a search on a Dask cluster: preparing and building on CPUs, measuring alone on each device.

A worker that measures offers the resource ``device``; whatever needs one asks for one. Several workers of one device
take turns at its clock (:mod:`kernellab.verifier.judge.turns`), so that it times one candidate at a time while others
are built. What a worker that died had in hand is given to another by Dask.
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
from kernellab.evolve.judges import LocalJudge, LocalWorkers, local_judges
from kernellab.evolve.records import Begun, Evaluation, Step
from kernellab.records import Verdict
from kernellab.target import Target
from kernellab.verifier.judge import turns
from kernellab.verifier.remote import DEVICE, connected

log = logging.getLogger("kernellab.evolve")

#: what a worker offers that only prepares: candidates are made ready while the devices time others
BUILD = "build"
#: such workers for each GPU, where the machine has the cores
_BUILDERS = 2
#: how often a local cluster is started, where a process of it dies meanwhile
_STARTS = 3
#: deaths of workers that one job may see before it is given up: the job may be their cause
_DEATHS = 3
#: seconds between two looks; a candidate is late after so many seconds and times the median of the last ones
_LOOK, _LATE_SECONDS, _LATE, _KNOWN, _RECENT = 1.0, 60.0, 8.0, 5, 50
#: the servers of figures that Dask's processes always have are for this machine alone, and have no pages
_NO_PAGES = {"dashboard": False, "dashboard_address": "127.0.0.1:0"}
_NO_ROUTES: dict[str, Any] = {f"distributed.{who}.http.routes": [] for who in ("scheduler", "worker")}
_DIED = f"{_DEATHS + 1} workers died at it."
#: how Dask names what its futures end with when no one schedules them any more
_GONE = ("CancelledError", "FutureCancelledError", "FuturesCancelledError", "CommClosedError", "TimeoutError")


@dataclass(eq=False)
class _Hand:
    """Work that was given out: what its caller waits for, how it is submitted, and Dask's futures of it."""

    ours: Future[Any]
    submit: Callable[[], Any]
    job: Job | None
    began: float = field(default_factory=time.monotonic)
    theirs: list[Any] = field(default_factory=list)


class DaskWorkers:
    """``where`` is ``local``, ``local:N`` (N processes here) or ``dask://HOST:PORT``; the processes of
    ``local`` share this machine's GPUs where kernels run ``on_gpu``.

    Raises:
        EvolveError: the extra is not installed, the word is wrong, the cluster cannot be reached or has no device.
    """

    def __init__(self, where: str, on_gpu: bool = False) -> None:
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._lock, self._ended = threading.Lock(), threading.Event()
        self._hands: set[_Hand] = set()
        self._took: list[float] = []
        self._cluster: Any = None
        self._client = self._connected(where, on_gpu)
        known = self._client.scheduler_info(n_workers=-1)["workers"]
        found = known.values()
        self._devices = [address for address, worker in known.items() if worker["resources"].get(DEVICE)]
        self._build = BUILD if any(worker["resources"].get(BUILD) for worker in found) else ""
        self._warming: list[Any] = []
        self.judges = sum(int(worker["resources"].get(DEVICE, 0)) for worker in found)
        if not self.judges:
            self.close()
            raise EvolveError(
                f"No worker of {where} offers a device to measure on.",
                f"Start workers with `dask worker HOST:PORT --resources '{DEVICE}=1'`.",
            )
        #: enough that each device finds a prepared candidate waiting
        self.room = sum(worker["nthreads"] for worker in found) + self.judges
        threading.Thread(target=self._watch, name="kernellab-cluster", daemon=True).start()

    def start(self, begun: Begun) -> None:
        """Every device's judge at once, before there is a candidate."""
        self._everywhere(_start, begun)

    def warm(self, job: Job) -> None:
        """Every device's judge at once, with a candidate of the task: its reference and eager are built with it."""
        self._everywhere(_rank, job)

    def _everywhere(self, work: Callable[..., Any], given: Any) -> None:
        for address in self._devices:
            with suppress(Exception):  # a worker that is gone is warmed by its first candidate
                self._warming.append(self._client.submit(
                    work, given, pure=False, retries=_DEATHS, priority=1, resources={DEVICE: 1}, workers=[address],
                ))  # fmt: skip

    def evaluate(self, job: Job) -> Future[Evaluation]:
        return self._done(lambda: self._submit(_finish, self._submit(jobs.prepare, job, self._build)), job)

    def rank(self, job: Job) -> Future[Ranked]:
        return self._done(lambda: self._submit(_rank, job))

    def verify(self, job: Job) -> Future[Verdict]:
        return self._done(lambda: self._submit(_verify, job))

    def compare(self, job: Job, other: Job) -> Future[Verdict]:
        return self._done(lambda: self._submit(_compare, (job, other)))

    def call_off(self) -> None:
        """What a worker measures it measures to its end; the others have what comes next."""

    def close(self) -> None:
        self._ended.set()
        with suppress(Exception):  # a scheduler that is gone answers nothing
            self._client.close()
        if self._cluster is not None:
            self._cluster.close()
        if self._folder is not None:
            self._folder.cleanup()

    def _submit(self, work: Callable[..., Any], given: Any, resource: str = DEVICE) -> Any:
        """Raises WorkersLost."""
        try:
            wanted = {"resources": {resource: 1}} if resource else {}
            return self._client.submit(work, given, pure=False, retries=_DEATHS, **wanted)
        except Exception as error:  # Dask's own for a client without a scheduler has no stable name
            if self._client.status == "running":
                raise
            raise _lost(error) from None

    def _done(self, submit: Callable[[], Any], job: Job | None = None) -> Future[Any]:
        """What comes of work at Dask as a future of the standard library; ``job`` where it may be given out again."""
        hand = _Hand(Future(), submit, job)
        with self._lock:
            self._hands.add(hand)
        hand.ours.add_done_callback(partial(self._called_off, hand))
        self._give_out(hand)
        return hand.ours

    def _give_out(self, hand: _Hand) -> None:
        hand.theirs.append(theirs := hand.submit())
        theirs.add_done_callback(partial(self._settle, hand))

    def _called_off(self, hand: _Hand, ours: Future[Any]) -> None:
        """No caller waits for it any more, so that no device need have it."""
        if ours.cancelled() and self._taken(hand):
            _cancel(hand.theirs)

    def _taken(self, hand: _Hand) -> bool:
        """The one who takes a piece of work from the others ends it."""
        with self._lock:
            held = hand in self._hands
            self._hands.discard(hand)
        return held

    def _settle(self, hand: _Hand, theirs: Any) -> None:
        """The first result counts."""
        if not self._taken(hand) or not hand.ours.set_running_or_notify_cancel():
            return
        try:
            found = theirs.result()
        except BaseException as error:
            if hand.job is not None and type(error).__name__ == "KilledWorker":
                hand.ours.set_result(_fatal(hand.job))
            else:
                hand.ours.set_exception(_told(error))
            return
        self._took.append(time.monotonic() - hand.began)
        hand.ours.set_result(found)

    def _watch(self) -> None:
        """Gives a candidate out again that takes far longer than others, and ends what no one schedules any more."""
        while not self._ended.wait(_LOOK):
            with self._lock:
                hands = list(self._hands)
            if self._client.status == "closed":
                for hand in hands:
                    if self._taken(hand) and hand.ours.set_running_or_notify_cancel():
                        hand.ours.set_exception(_lost("closed"))
            elif len(self._took) >= _KNOWN:
                late = time.monotonic() - max(_LATE_SECONDS, _LATE * median(self._took[-_RECENT:]))
                for hand in hands:
                    if hand.job is not None and len(hand.theirs) == 1 and hand.began < late:
                        with suppress(WorkersLost):
                            self._give_out(hand)
                        if hand.ours.cancelled():  # called off meanwhile, by one who did not see this future
                            _cancel(hand.theirs)

    def _connected(self, where: str, on_gpu: bool) -> Any:
        try:
            client: Any = import_module("distributed").Client
            if where.partition(":")[0] == "local":
                import_module("cryptography")  # with which a cluster of this machine makes its key
        except ImportError as error:
            raise EvolveError(
                f"A search on a cluster needs {error.name}, which is not installed.",
                "pip install 'kernellab[cluster]'.",
            ) from None
        # what Dask says of its own start, end and loss would stand under a person's cell; errors are reported as ours
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
        """Processes of this machine, each with its own judge, so that they build and check side by side. Those of
        one device take turns at its clock; on a CPU nothing is built while a kernel is timed."""
        dask: Any = import_module("distributed")
        config: Any = import_module("dask.config")
        # who reaches a port of Dask's runs code in its workers: this process alone has the key, made for this cluster
        held = {"security": dask.Security.temporary(), "host": "127.0.0.1", **_NO_PAGES}
        self._folder = tempfile.TemporaryDirectory(prefix="kernellab-cluster-")
        specs = {}
        measuring = max(processes, len(gpus))
        spare = (os.cpu_count() or 1) - measuring - 1
        builders = min(_BUILDERS * len(gpus), max(0, spare))
        for at in range(measuring + builders):
            device = gpus[at % len(gpus)] if gpus else ""
            environment = {turns.VARIABLE: f"{'device' if gpus else 'all'}:{Path(self._folder.name, 'turns' + device)}"}
            if gpus:
                environment["CUDA_VISIBLE_DEVICES"] = device
            specs[at] = {
                "cls": dask.Nanny,
                "options": {
                    **held, "nthreads": 1, "resources": {DEVICE if at < measuring else BUILD: 1}, "env": environment,
                    "memory_limit": 0, "silence_logs": logging.ERROR,
                },
            }  # fmt: skip
        scheduler = {"cls": dask.Scheduler, "options": {**held, "port": 0}}
        for attempt in range(1, _STARTS + 1):
            try:
                with config.set(_NO_ROUTES):
                    return dask.SpecCluster(
                        workers=specs, scheduler=scheduler, security=held["security"], silence_logs=logging.ERROR
                    )
            except Exception as error:  # a process was ended while it started
                if attempt == _STARTS:
                    raise EvolveError(
                        f"The workers of this machine do not start: {type(error).__name__}: {error}",
                        "Leave out --cluster, or see that nothing ends them.",
                    ) from error
                log.warning("A worker died before it had started; all are started again.")
        raise AssertionError


def workers_for(cluster: str, target: Target, room: int) -> DaskWorkers | LocalWorkers:
    """Who does a search's jobs: ``cluster``, or threads of this process with ``room`` candidates under way.

    Raises:
        EvolveError: as :class:`DaskWorkers`.
    """
    if cluster:
        return DaskWorkers(cluster, target.chip.kind == "gpu")
    return LocalWorkers(local_judges(target), room)


def _cancel(futures: list[Any]) -> None:
    for theirs in futures:
        with suppress(Exception):  # a scheduler that is gone has nothing to call off
            theirs.cancel()


def _visible() -> list[str]:
    """The GPUs that this process may use, by the names that CUDA_VISIBLE_DEVICES gives them."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    return [name.strip() for name in named.split(",") if name.strip()] or [str(n) for n in range(len(gpu_products()))]


_judge: LocalJudge | None = None
_making = threading.Lock()


def _own_judge() -> LocalJudge:
    """A worker's judge, which stays warm."""
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
    """A candidate that ends its workers fails; the run continues without it."""
    return Evaluation(number=job.number, key=job.key, passed=False, step=Step.RANK, reason=_DIED)


def _told(error: BaseException) -> BaseException:
    """A worker's error as one that a run ends with: its class and words are kept, Dask's own are explained."""
    name = type(error).__name__
    if name == "KilledWorker":
        return TargetError(_DIED, "See the workers' logs; drop the candidate and go on.")
    return _lost(name) if name in _GONE else error


def _lost(why: object) -> WorkersLost:
    return WorkersLost(
        f"The cluster is gone ({why}).", "Start it again, and go on with `kernellab evolve --resume RUN --cluster ...`."
    )


__all__ = ["DEVICE", "DaskWorkers", "workers_for"]
