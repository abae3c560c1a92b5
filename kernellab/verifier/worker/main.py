"""A worker's start: it confines itself, reports its sandbox, and obeys (:mod:`~kernellab.verifier.worker.calls`)."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import sys
import traceback
from collections.abc import Callable
from typing import Any

from kernellab.sandbox import sandbox
from kernellab.sandbox.caps import CAPS
from kernellab.verifier.protocol import wire
from kernellab.verifier.protocol.control import Control
from kernellab.verifier.worker import appearance, harness, ordinary
from kernellab.verifier.worker import build as worker_build
from kernellab.verifier.worker.calls import Worker


def run(request: dict[str, Any], fds: dict[str, int], namespaces: str) -> None:
    """The worker's life: confine, report, then obey until the judge closes the channel. Does not return normally."""
    import socket

    channel = socket.socket(fileno=fds["packets"])
    try:
        worker = _start(channel, request, fds, namespaces)
    except Exception as error:  # no code of a candidate has run: the judge must not take this for a kernel's end
        with contextlib.suppress(OSError):  # a process that stands in for a user's has closed it
            wire.post(channel, {"fault": f"{type(error).__name__}: {error}"[: CAPS.message // 8]})
        raise
    worker.obey()


def _start(channel: Any, request: dict[str, Any], fds: dict[str, int], namespaces: str) -> Worker:
    """Confine this process and report to the judge. A process that stands in for a user's does not return."""
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(fds["log"], 1)
    os.dup2(fds["log"], 2)
    keep = {0, 1, 2, fds["packets"], fds["control"], fds["done"]}
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in keep:
            with contextlib.suppress(OSError):  # the listing's own descriptor is already closed
                os.close(int(name))
    scratch, environment = _scratch_and_environment(request)
    os.environ.clear()
    os.environ.update(environment)
    if request["role"] != "ordinary":
        appearance.keep_pages()
    appearance.show(environment, (sys.executable, "run.py"))
    os.chdir(os.path.join(scratch, "work"))
    import tempfile

    tempfile.tempdir = None
    parts = [namespaces] if namespaces else []
    access = scratch, request.get("devices", ()), request.get("writable", ())
    parts += [*sandbox.other_user(*access), *sandbox.confine(*access)]
    if request["role"] == "ordinary":
        _as_a_user(channel, environment, parts, request.get("device", "cpu"))
    kind: type[Worker] = Worker
    if request.get("device", "cpu") != "cpu":
        from kernellab.verifier.cuda.worker import DeviceWorker

        kind = DeviceWorker
    worker = kind(channel, Control(fds["control"]), fds["done"], request)
    wire.post(channel, {"sandbox": parts or ["process"], "harness": harness.addresses(worker)})
    return worker


def _scratch_and_environment(request: dict[str, Any]) -> tuple[str, dict[str, str]]:
    """The scratch folder as this process sees it, and its environment with the paths adjusted to that place."""
    scratch, seen_at, environment = request["scratch"], request.get("seen_at"), dict(request["environment"])
    if not seen_at:
        return scratch, environment
    with contextlib.suppress(OSError):
        if os.path.samefile(scratch, seen_at):
            return seen_at, environment
    return scratch, {name: value.replace(seen_at, scratch) for name, value in environment.items()}


def _as_a_user(channel: Any, environment: dict[str, str], parts: list[str], device: str) -> None:
    """On the judge's request, run the prepared job (:mod:`~kernellab.verifier.worker.ordinary`) with nothing of the
    judge but the sandbox: in this process, or by a shell."""
    wire.post(channel, {"sandbox": parts or ["process"], "harness": []})
    message, _ = wire.take(channel)
    del channel
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    if message and message.get("shell"):
        shell = f"{shlex.quote(sys.executable)} run.py; exit $?"
        os.execve("/bin/sh", ["sh", "-c", shell], environment)
    with open("job.json", encoding="utf-8") as file:
        job = json.load(file)
    path = os.path.abspath(os.path.join(job["folder"], job["entry_file"]))
    build = {
        **job["build"],
        "root": os.path.abspath(job["folder"]),
        "module": os.path.splitext(os.path.basename(path))[0],
    }
    worker_build.ready()
    if device != "cpu":
        from kernellab.verifier.cases.device import set_precision

        set_precision(build["precision"])
    appearance.forget(path)
    code = 0
    try:
        ordinary.run(job, lambda: _built(build, device, job["written"]))
    except BaseException:
        os.write(2, traceback.format_exc().encode(errors="replace"))
        code = 1
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # the kernel may have closed it
            stream.flush()
    os._exit(code)


def _built(message: dict[str, Any], device: str, written: list[int]) -> Callable[..., Any]:
    """The candidate's function. Of a model, another instance with other weights is called before each call, on copies
    of what it writes into, so that what a kernel keeps for all instances of a class is stale; ``alone`` calls none,
    since that would take the place of what a class keeps for its last call."""
    built = worker_build.candidate({**message, "two": True}, device)
    other, weight_count = built.other, len(message.get("state", ()))

    def alone(*args: Any) -> Any:
        return built.function(*built.load(args))

    def call(*args: Any) -> Any:
        if other is not None:
            split = len(args) - weight_count
            copies = [a.clone() if i in written else a for i, a in enumerate(args[:split])]
            with contextlib.suppress(Exception):  # torch multiplies no float8
                other_weights = [a * 0.5 if a.is_floating_point() else a for a in args[split:]]
                other.function(*other.load([*copies, *other_weights]))
        return alone(*args)

    call.alone = alone  # type: ignore[attr-defined]
    return call
