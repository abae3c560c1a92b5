"""``-m kernellab.sketch.run.server FD IDLE``: the process that computes sketches, and what confines it.

A sketch is what a stranger may have written, and ``library.aten`` in it names any operation of ATen: one that trusts
its operands reads and writes memory of the process that runs it. So the values of a sketch are computed by a worker
that has the sandbox of a candidate's, no key, no reference and no seed, and that lives for one sketch. This process
imports torch once, confines itself, forks the workers, and ends when it was asked nothing for IDLE seconds."""

from __future__ import annotations

import gc
import io
import json
import os
import resource
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import wait
from typing import Any, NoReturn

from kernellab.errors import SketchError
from kernellab.sandbox import landlock, readable, sandbox, seccomp
from kernellab.sketch.run import client, confined, messages
from kernellab.sketch.run.machine import is_out_of_memory

#: bytes that a worker may map beyond what it begins with
MEMORY = 4 << 30
_LINUX = sys.platform == "linux"


def main() -> None:
    channel = socket.socket(fileno=int(sys.argv[1]))
    level = ""
    if _LINUX:
        sandbox.dumpable(False)
        level = sandbox.enter()
    # a folder that the workers' user may enter; it is gone before a sketch is computed. An agent may write to none
    scratch = ""
    with suppress(OSError):
        scratch = tempfile.mkdtemp(prefix="kernellab-sketch-")
    reading, writing = os.pipe()
    server = os.fork()
    if server == 0:
        os.close(reading)
        _serve(channel, level, scratch, writing)
    channel.close()
    os.close(writing)
    os.read(reading, 1)
    sandbox.remove(scratch)
    _wait(server)


def _wait(server: int) -> NoReturn:
    """Wait until the server ends, or the process that started this one (its end of the standard input closes)."""
    ended = _descriptor_of(server)
    # without it nothing tells when the server ends: the channel tells its client
    wait([sys.stdin.fileno(), *ended])
    with suppress(ProcessLookupError):
        os.kill(server, signal.SIGKILL)
    os.waitpid(server, 0)
    os._exit(0)


def _descriptor_of(pid: int) -> list[int]:
    return [os.pidfd_open(pid)] if hasattr(os, "pidfd_open") else []


def _serve(channel: socket.socket, level: str, scratch: str, writing: int) -> NoReturn:
    """Import what a worker needs, give up all rights, and fork workers until the client is gone. ``writing`` closes
    when the folder ``scratch`` is used no more."""
    held = []
    if _LINUX:
        sandbox.die_with_parent()
        held += [level if sandbox.own_proc() else f"{level} (shared /proc)"] if level else []
    os.setsid()
    nowhere = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nowhere, standard)
    # while there is one thread
    if _LINUX:
        held += sandbox.other_user(scratch)
        sandbox.die_with_parent()  # another user's number has cleared it
    gc.disable()  # imports leave no garbage, and searching them for some takes a sixth of their time
    import torch  # noqa: F401

    import kernellab.sketch.run.interpreter
    import kernellab.sketch.run.tracer  # noqa: F401  (a worker must find them imported)

    if _LINUX:
        held += sandbox.confine(scratch)
        os.chdir("/")
        sandbox.dumpable(False)
    os.close(writing)
    paths = readable.trees() if _LINUX else []
    # a worker that searched the imports for garbage would copy each of their pages
    gc.collect()
    gc.freeze()
    gc.enable()
    _say(channel, {"held": held})
    workers: set[int] = set()
    with suppress(OSError):
        while wait([channel], float(sys.argv[2])) or workers:
            text, fds, _, _ = socket.recv_fds(channel, client.MOST_REQUEST, 1)
            if not text:
                break
            _say(channel, _answer(json.loads(text), fds, channel, paths, workers))
    os._exit(0)


def _say(channel: socket.socket, answer: dict[str, Any]) -> None:
    channel.sendall(json.dumps(answer).encode() + b"\n")


def _answer(
    request: dict[str, Any], fds: list[int], channel: socket.socket, paths: list[str], workers: set[int]
) -> dict[str, Any]:
    """``{"begin": 1}`` and a socket: the number of a new worker, which obeys there. ``{"look": worker}``: its seconds
    of the processor. ``{"end": worker}``: how it ended, which it does at the latest now."""
    if "begin" in request:
        pid = os.fork()
        if pid == 0:
            channel.close()
            _work(socket.socket(fileno=fds[0]), paths)
        os.close(fds[0])
        workers.add(pid)
        return {"worker": pid}
    if "look" in request:
        return {"seconds": _seconds_of(request["look"])}
    pid = request["end"]
    workers.discard(pid)
    deadline = time.monotonic() + request.get("patience", 0.0)
    ended, status = os.waitpid(pid, os.WNOHANG)
    while not ended and time.monotonic() < deadline:
        time.sleep(0.001)
        ended, status = os.waitpid(pid, os.WNOHANG)
    if not ended:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        return {"code": None}
    return {"code": os.waitstatus_to_exitcode(status)}


def _seconds_of(pid: int) -> float | None:
    """Seconds of the processor's time that a child has used; None where the system does not say."""
    try:
        return time.clock_gettime((~pid << 3) | 2) if _LINUX else None
    except OSError:
        return None


# -- the worker --------------------------------------------------------------------------------------------------------


def _work(channel: socket.socket, paths: list[str]) -> NoReturn:
    """Compute what ``channel`` asks for until it closes; ``paths`` are all that a worker may read."""
    try:
        if _LINUX:
            sandbox.die_with_parent()
            # a domain below the server's: no signal to other workers; and nothing that outlives the worker
            landlock.restrict(paths, [])
            seccomp.no_processes()
            _limit_memory()
        confined.compute_here()
        sent = messages.SentPrograms()
        fill = _reader(channel)
        while True:
            try:
                function, arguments = messages.take_call(fill, sent)
            except EOFError:
                break
            began = time.thread_time()
            answer = _computed(function, arguments)
            messages.send_answer(channel.sendall, {**answer, "seconds": time.thread_time() - began})
    finally:
        os._exit(0)


def _reader(channel: socket.socket) -> Callable[[memoryview], None]:
    """Return what fills memory from ``channel``, reading ahead; it raises EOFError at the end."""
    stream = io.BufferedReader(socket.SocketIO(channel, "r"), messages.SMALL)

    def fill(part: memoryview) -> None:
        while len(part):
            count = stream.readinto(part)
            if not count:
                raise EOFError
            part = part[count:]

    return fill


def _limit_memory() -> None:
    with open("/proc/self/statm", "rb") as file:
        most = int(file.read().split()[0]) * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def _too_large() -> dict[str, Any]:
    what = f"The sketch needs more than {MEMORY >> 30} GiB of memory to be computed."
    return {"error": "NotRunnable", "message": what, "remedy": "Give smaller sizes or tiles."}


def _computed(function: Any, arguments: list[Any]) -> dict[str, Any]:
    try:
        return {"value": function(*arguments)}
    except SketchError as error:
        kind = next(name for name, known in confined.ERRORS.items() if isinstance(error, known))
        return {"error": kind, "message": error.message, "remedy": error.remedy}
    except MemoryError:
        return _too_large()
    except Exception as error:
        if is_out_of_memory(error):
            return _too_large()
        what = f"The sketch cannot be computed: {type(error).__name__}: {error}"
        return {"error": "SketchError", "message": what[:1000], "remedy": "Check that its shapes and dtypes agree."}


if __name__ == "__main__":
    main()
