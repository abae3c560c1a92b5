"""A warm process that forks workers: torch and the DSL are imported, no torch operation has run, no GPU context exists.

The judge starts it as ``-m kernellab.verifier.judge.forkserver FD``, one per environment. Each request on FD carries
the worker's file descriptors; the answer names the process whose death ends the worker and its descendants.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from multiprocessing.connection import wait
from typing import Any, NamedTuple

from kernellab.sandbox import mounts, sandbox
from kernellab.verifier.judge import halting
from kernellab.verifier.protocol import wire

#: file descriptors of a spawn request, in order
FDS = ("packets", "control", "done", "log", "life")


def main() -> None:
    """Import the modules named on the command line, report, and serve requests."""
    channel = socket.socket(fileno=int(sys.argv[1]))
    # a compiler that a worker starts needs no guards, and could not read the file
    os.environ.pop("LD_PRELOAD", None)
    sandbox.die_with_parent()
    sandbox.become_subreaper()
    sandbox.dumpable(False)
    gc.disable()  # imports leave no garbage, and searching them for some takes a sixth of their time
    failed = {}
    # store the bytecode of imports if the installation has none: torch's compiler otherwise takes 15 s each time. A
    # worker writes none
    dont_write, sys.dont_write_bytecode = sys.dont_write_bytecode, False
    for name in sys.argv[2:]:
        try:
            with _without_driver():
                importlib.import_module(name)
        except ImportError as error:
            failed[name] = str(error)
    if "triton" in sys.argv[2:]:
        _warm_triton()
    import kernellab.verifier.worker.main  # noqa: F401  (a worker must find it warm)

    sys.dont_write_bytecode = dont_write

    # imports stay: a worker that searched them for garbage would pause, and copy each of their pages
    gc.collect()
    gc.freeze()
    gc.enable()
    wire.post(channel, {"ready": True, "failed": failed, "threads": len(os.listdir("/proc/self/task"))})
    serve(channel)


def _warm_triton() -> None:
    """Make Triton build its driver helper and compile one kernel here, so that workers, whose caches are empty, inherit
    the helper (0.35 s of the C compiler) and what a first compile reads and hashes (all of Triton, 0.4 s). Neither uses
    the driver. Does nothing for a Triton with another structure."""
    if not os.path.exists("/dev/nvidiactl") or os.environ.get("TRITON_INTERPRET") == "1":
        return
    before = os.environ.get("TRITON_CACHE_DIR")
    with contextlib.suppress(Exception), tempfile.TemporaryDirectory(prefix="kernellab-triton-") as folder:
        driver = importlib.import_module("triton.backends.nvidia.driver")
        os.environ["TRITON_CACHE_DIR"] = folder
        driver.CudaUtils()
        # the class has a single instance, which each use of the class would build again
        driver.CudaUtils.__init__ = lambda self: None
        _compile_one()
    os.environ.pop("TRITON_CACHE_DIR", None)
    if before is not None:
        os.environ["TRITON_CACHE_DIR"] = before


def _compile_one() -> None:
    """Compile a kernel for an arbitrary device; no device is queried."""
    triton: Any = importlib.import_module("triton")
    backends: Any = importlib.import_module("triton.backends.compiler")
    compiler: Any = importlib.import_module("triton.compiler")

    triton.compile(compiler.ASTSource(triton.jit(_empty_kernel), {}), target=backends.GPUTarget("cuda", 80, 32))


def _empty_kernel() -> None:
    pass


@contextlib.contextmanager
def _without_driver() -> Iterator[None]:
    """Imports while entered may ask torch whether there is a GPU (tvm_ffi does); the answer comes from the device
    files. If the driver were queried, no child could start CUDA; if NVML were, children would inherit an NVML that
    finds no device in their sandbox, and torch would then return None for the current device."""
    torch = sys.modules.get("torch")
    if torch is None:
        yield
        return
    is_available, is_hidden = torch.cuda.is_available, os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1")
    compiled = hasattr(torch._C, "_cuda_getDeviceCount")
    torch.cuda.is_available = lambda: compiled and not is_hidden and os.path.exists("/dev/nvidiactl")
    try:
        yield
    finally:
        torch.cuda.is_available = is_available


def serve(channel: socket.socket) -> None:
    """Answer requests until the judge closes the channel; all forked processes then end with it."""
    children: set[int] = set()
    ended: dict[int, int] = {}
    while True:
        ready = wait([channel], 1.0)
        _reap(children, ended)
        if not ready:
            continue
        request, fds = wire.take(channel)
        if request is None:
            break
        try:
            if "ended" in request:
                wire.post(channel, {"code": _code(request["ended"], children, ended)})
                continue
            spawned = spawn(request, fds, channel)
            children.add(spawned.pid)
            wire.post(channel, {"pid": spawned.pid, "sandbox": spawned.namespaces})
        except OSError as error:
            wire.post(channel, {"error": str(error)})
        finally:
            for fd in fds:
                os.close(fd)
    for pid in children:
        os.kill(pid, signal.SIGKILL)


class Spawned(NamedTuple):
    """The process whose end ends a worker, and the names of the namespaces that were reached."""

    pid: int
    namespaces: str


def spawn(request: dict[str, Any], fds: list[int], channel: socket.socket) -> Spawned:
    """Fork a worker.

    Three forks: one that enters the namespaces, their first process (which only waits), and the worker.
    """
    reading, writing = os.pipe()
    middle = os.fork()
    if middle == 0:
        os.close(reading)
        sandbox.dumpable(True)
        level = sandbox.enter() if request.get("namespaces", True) else ""
        pid = os.fork()
        if pid == 0:
            os.close(writing)
            channel.close()
            _first_process(request, dict(zip(FDS, fds, strict=True)), level)
        os.write(writing, f"{pid} {level}".encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        answer = pipe.read().split(" ")
    os.waitpid(middle, 0)
    if not answer[0]:
        raise OSError("the worker could not be forked")
    return Spawned(int(answer[0]), answer[1])


def _first_process(request: dict[str, Any], fds: dict[str, int], level: str) -> None:
    """Wait for the worker and for the judge; the end of this process ends the whole PID namespace."""
    try:
        os.setsid()
        proc = sandbox.own_proc() if "pid" in level else False
        if proc and request.get("seen_at"):
            mounts.show(request["scratch"], request["seen_at"])
        if not level:
            sandbox.become_subreaper()
        worker = os.fork()
        if worker == 0:
            os.close(fds.pop("life"))
            from kernellab.verifier.worker.main import run

            run(request, fds, level if proc or not level else f"{level} (shared /proc)")
            os._exit(0)
        for name, fd in fds.items():
            if name != "life":
                os.close(fd)
        watch = os.pidfd_open(worker)
        life = socket.socket(fileno=fds["life"])
        while True:
            ready = wait([life.fileno(), watch])
            if watch in ready or not halting.obey(life, worker, alone=os.getpid() == 1):
                break
        code = 0
        if watch in ready:
            status = os.waitpid(worker, 0)[1]
            code = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        if not level:
            os.killpg(0, signal.SIGKILL)
        os._exit(code)
    finally:
        os._exit(0)


def _reap(children: set[int], ended: dict[int, int]) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        if pid in children:
            children.discard(pid)
            ended[pid] = os.waitstatus_to_exitcode(status)


def _code(pid: int, children: set[int], ended: dict[int, int]) -> int | None:
    """The exit code of a worker's first process (minus the worker's signal), for evidence only."""
    limit = time.monotonic() + 1.0
    while pid not in ended and time.monotonic() < limit:
        _reap(children, ended)
        time.sleep(0.002)
    return ended.pop(pid, None)


if __name__ == "__main__":
    main()
