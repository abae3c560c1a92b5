"""The judge's fork servers (one per environment) and the baselines' workers, kept warm between verifications."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from kernellab.dsls import get_adapter
from kernellab.sandbox import landlock
from kernellab.sandbox.caps import CAPS
from kernellab.target import Backend
from kernellab.target.cpu import cpu_flags
from kernellab.task import Task
from kernellab.task.sample.sizes import input_bytes
from kernellab.verifier.attribution.objects import NEUTRAL
from kernellab.verifier.coverage import build as coverage
from kernellab.verifier.judge.failures import WorkerFailure
from kernellab.verifier.judge.libraries import built, preloadable
from kernellab.verifier.judge.servers import ForkServer
from kernellab.verifier.judge.worker_client import Worker
from kernellab.verifier.judge.worker_environment import USERS
from kernellab.verifier.protocol.rules import COMPILED, DEVICE
from kernellab.verifier.ranking.cases import Recent

#: the allocator with guards
HEAP = Path(__file__).parents[1] / "worker" / "heap.c"
#: two tasks, each with two workers of eager and one of torch.compile
_BASELINES = 6
#: inductor would first precompile torch's headers, once for each worker since they go to its temporary folder: that
#: takes longer (10 s of a core) than all kernels of a usual task without them (3 s each). Processes of a compile pool
#: would each import torch first, which takes longer than the few kernels of a task
INDUCTOR = {"TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": "0", "TORCHINDUCTOR_COMPILE_THREADS": "1"}
#: options for the widest vector instructions that torch uses, by their names in /proc/cpuinfo
_WIDEST = {"avx512_bf16": "-mavx512bf16", "amx_tile": "-mamx-tile", "amx_bf16": "-mamx-bf16", "amx_int8": "-mamx-int8",
           "amx_fp16": "-mamx-fp16", "avx10_2": "-mavx10.2"}  # fmt: skip
#: seconds for which an unused fork server (180 MB) stays once a kernel for another environment arrives
IDLE_SECONDS = 20.0
#: modules that a worker of torch.compile imports before it compiles (4 s), preloaded by a separate fork server
_COMPILER = ("torch._dynamo", "torch._inductor.compile_fx", "torch._inductor.codegen.triton",
             "torch._inductor.codegen.cpp")  # fmt: skip


def memory_limit(task: Task, backend: Backend) -> int:
    """Largest resident bytes of a worker for calls of ``task``."""
    context = DEVICE.context_bytes if backend is Backend.CUDA else 0
    return CAPS.memory + CAPS.memory_factor * input_bytes(task) + context


@cache
def inductor() -> dict[str, str]:
    """:data:`INDUCTOR`, plus, if the compiler supports the processor's vector instructions, a statement that they work:
    otherwise torch tests each set in a process that imports torch (2.5 s each, thirteen of them with torch 2.11)."""
    try:
        options = [option for flag, option in _WIDEST.items() if flag in cpu_flags()]
        command = [os.environ.get("CXX") or "g++", "-mavx512f", *options, "-E", "-x", "c++", "/dev/null"]
        is_known = not subprocess.run(command, capture_output=True, timeout=10, check=False).returncode
    except (OSError, subprocess.SubprocessError):
        is_known = False
    return INDUCTOR | ({"TORCHINDUCTOR_VEC_ISA_OK": "1"} if is_known else {})


def _key(preload: tuple[str, ...], environment: Mapping[str, str]) -> tuple[str, ...]:
    return (*preload, *(f"{k}={v}" for k, v in sorted(environment.items())))


class Pool:
    """The judge's fork servers and baseline workers. Closed with the judge; restarts a fork server that has ended."""

    def __init__(self) -> None:
        self._servers: dict[tuple[str, ...], ForkServer] = {}
        self._asked: dict[tuple[str, ...], float] = {}
        self._baselines: OrderedDict[tuple[str, str, str, int, int], Worker] = OrderedDict()
        #: the allocator of workers on a CPU, once requested
        self._allocators: list[Path | None] = []
        #: what a ranking stores for the next one of its task
        self.recent = Recent()
        self._root = Path(tempfile.mkdtemp(prefix="kernellab-judge-"))
        # a worker may belong to another user, and must reach the compile cache that it shares
        self._root.chmod(0o711)

    def server(self, dsl: str, backend: Backend, compiles: bool = False) -> ForkServer:
        """The warm fork server for a DSL on a backend, or with ``compiles`` for its baseline by torch.compile."""
        preload, environment = self._needs(dsl, backend, compiles)
        key = _key(preload, environment)
        self._asked[key] = time.monotonic()
        server = self._servers.get(key)
        if server is None or not server.alive():
            if server is not None:
                server.close()
            names = [*preload, "kernellab.task.module"]
            server = self._servers[key] = ForkServer(names, environment, self._allocator(backend))
        return server

    def _needs(self, dsl: str, backend: Backend, compiles: bool) -> tuple[tuple[str, ...], dict[str, str]]:
        """The modules that a server imports, and its environment."""
        adapter = get_adapter(dsl)
        # some compilers end the process that imports them if HOME is not set
        home = {"HOME": str(self._root)}
        environment = {**home, **adapter.environment(backend, self._root), **(inductor() if compiles else {})}
        return (*adapter.preload, *(_COMPILER if compiles else ())), environment

    def end_idle(self, dsl: str, backend: Backend) -> None:
        """Between verifications, before one for a DSL on a backend: end other servers that were idle for a while, with
        the baselines' workers forked from them."""
        needed = {_key(*self._needs(dsl, backend, compiles)) for compiles in (False, True)}
        for key in self._servers.keys() - needed:
            if time.monotonic() - self._asked[key] > IDLE_SECONDS:
                server = self._servers.pop(key)
                for worker in [w for w in self._baselines.values() if w.server is server]:
                    self.drop(worker)
                server.close()

    def _allocator(self, backend: Backend) -> Path | None:
        """The allocator with guards for workers on a CPU; None if this machine does not support it."""
        if backend is not Backend.CPU:
            return None
        if not self._allocators:
            library = built(HEAP, self._root, ("-Wl,-z,now",))
            self._allocators.append(library if library is not None and preloadable(library) else None)
            NEUTRAL.update(str(path) for path in self._allocators if path is not None)
        return self._allocators[0]

    def worker(
        self, dsl: str, backend: Backend, role: str, threads: int, cache: Path | None = None, seen_at: str = "",
        counting: bool = False,
    ) -> Worker:  # fmt: skip
        """A fresh worker with the DSL's caches in its own scratch folder, or in another worker's, ``cache``. It sees
        its folder at ``seen_at``, if that is set and its namespace supports it. ``counting``: what it compiles counts
        its runs (:mod:`kernellab.verifier.coverage.build`)."""
        adapter = get_adapter(dsl)
        compiles = role in COMPILED
        shared = self._shared() if compiles else None

        def environment(scratch: Path) -> dict[str, str]:
            own = dict(adapter.environment(backend, cache or scratch / "cache"))
            compiles_ahead = (
                backend is Backend.CPU and adapter.compiles_in_calls
            )  # processes that compile ahead share this cache
            uses_home = (
                role == "ordinary" and not seen_at if backend is Backend.CUDA else role in USERS and not compiles_ahead
            )
            if uses_home and cache is None:
                # a user has no variables for caches: the defaults in the home folder apply
                own = {name: value for name, value in own.items() if str(scratch) not in value}
            if counting:
                own.update(coverage.environment(scratch, own.get("PATH", "")))
            return {**own, "TORCHINDUCTOR_CACHE_DIR": str(shared)} if shared else own

        writable = tuple(str(folder) for folder in (shared, cache) if folder)
        server = self.server(dsl, backend, compiles)
        if backend is Backend.CUDA:
            from kernellab.verifier.cuda import pool as cuda_pool
            from kernellab.verifier.cuda.worker_client import cuda_worker

            library = None if role == "ordinary" else cuda_pool.build(self._root)
            return cuda_worker(server, role, threads, environment, writable, library, seen_at)
        return Worker(server, role, threads, environment=environment, seen_at=seen_at, writable=writable)

    def _shared(self) -> Path | None:
        """The compile cache of torch.compile's workers, which only run tasks' own code; None if nothing would prevent a
        candidate from writing into it."""
        if not landlock.abi():
            return None
        shared = self._root / "inductor"
        shared.mkdir(exist_ok=True)
        return shared

    def begin_baseline(
        self, dsl: str, backend: Backend, kind: str, task: Task, threads: int, number: int = 0
    ) -> Worker | None:
        """The worker of a baseline, with its build started but not awaited; reused for the next candidate of the task.

        Workers with another ``number`` run the same code in a separate process. None while its fork server still
        imports modules: this does not wait.
        """
        worker = self._held(kind, task, threads, number)
        if worker is None and self.server(dsl, backend, kind in COMPILED).is_ready():
            return self._begun(dsl, backend, kind, task, threads, number)
        return worker

    def _held(self, kind: str, task: Task, threads: int, number: int) -> Worker | None:
        """An existing worker of the baseline, which becomes the most recently used; None if there is none."""
        key = (kind, task.name, task.hash, threads, number)
        worker = self._baselines.pop(key, None)
        if worker is None or worker.gone():
            return None
        self._baselines[key] = worker
        # its server is in use too
        self._asked |= {k: time.monotonic() for k, server in self._servers.items() if server is worker.server}
        return worker

    def _begun(self, dsl: str, backend: Backend, kind: str, task: Task, threads: int, number: int) -> Worker:
        worker = self.worker(dsl, backend, kind, threads)
        worker.memory_limit = memory_limit(task, backend)
        sizes = task.module().default_sizes()
        worker.begin_build(
            {
                "text": task.text, "name": task.name, "sizes": sizes, "precision": dict(task.precision),
                "numpy": task.framework == "numpy",
            }
        )  # fmt: skip
        self._baselines[kind, task.name, task.hash, threads, number] = worker
        while len(self._baselines) > _BASELINES:
            self._baselines.popitem(last=False)[1].close()
        return worker

    def baseline(
        self, dsl: str, backend: Backend, kind: str, task: Task, threads: int, deadline: float, number: int = 0
    ) -> Worker:
        """The worker of a baseline, built. Raises WorkerFailure if the build fails."""
        worker = self._held(kind, task, threads, number)
        worker = worker or self._begun(dsl, backend, kind, task, threads, number)
        try:
            worker.finish_build(deadline)
        except WorkerFailure:
            self.drop(worker)
            raise
        return worker

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """Run nothing of this judge's but the measured workers while entered: halts fork servers and running builds."""
        building = [w for w in self._baselines.values() if w.building and not w.stopped]
        for server in self._servers.values():
            server.pause()
        for worker in building:
            worker.stop()
        try:
            yield
        finally:
            for server in self._servers.values():
                server.resume()
            for worker in building:
                worker.resume()

    def drop_kind(self, kind: str, task: Task) -> None:
        """End the workers of one baseline of ``task``."""
        for key, worker in list(self._baselines.items()):
            if key[0] == kind and key[2] == task.hash:
                self.drop(worker)

    def release(self) -> None:
        """End all baselines' workers and forget what rankings share; the fork servers stay warm."""
        self.recent = Recent()
        while self._baselines:
            self._baselines.popitem()[1].close()

    def end_others(self, task: Task) -> None:
        """End the baselines' workers of other tasks, and forget what rankings of these share."""
        for (_, name, hash, _, _), worker in list(self._baselines.items()):
            if (name, hash) != (task.name, task.hash):
                self.drop(worker)
        if self.recent.task != task:
            self.recent = Recent()

    def drop(self, worker: Worker) -> None:
        """End a baseline's worker that misbehaved."""
        self._baselines = OrderedDict((k, w) for k, w in self._baselines.items() if w is not worker)
        worker.close()

    def versions(self) -> dict[str, str]:
        """Versions of the packages that influence a verdict."""
        return dict(_versions())

    def close(self) -> None:
        for worker in self._baselines.values():
            worker.close()
        for server in self._servers.values():
            server.close()
        shutil.rmtree(self._root, ignore_errors=True)


@cache
def _versions() -> dict[str, str]:
    versions = {}
    for name in ("kernellab", "torch", "triton", "apache-tvm-ffi"):
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    return versions
