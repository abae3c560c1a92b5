"""A worker's start: it confines itself, says what holds, and obeys (:mod:`~kernellab.verifier.worker.calls`)."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from typing import Any

from kernellab.verifier.protocol import wire
from kernellab.verifier.protocol.control import Control
from kernellab.verifier.sandbox import sandbox
from kernellab.verifier.worker import harness
from kernellab.verifier.worker.calls import Worker


def run(request: dict[str, Any], fds: dict[str, int], namespaces: str) -> None:
    """The worker's life: confine, report, then obey until the judge closes the channel. Does not return normally."""
    import socket

    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(fds["log"], 1)
    os.dup2(fds["log"], 2)
    keep = {0, 1, 2, fds["packets"], fds["control"], fds["done"]}
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in keep:
            with contextlib.suppress(OSError):  # the listing's own descriptor is already closed
                os.close(int(name))
    scratch = request["scratch"]
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(os.path.join(scratch, "work"))
    import tempfile

    tempfile.tempdir = None
    held = [namespaces] if namespaces else []
    open_to_it = scratch, request.get("devices", ()), request.get("writable", ())
    held += [*sandbox.other_user(*open_to_it), *sandbox.confine(*open_to_it)]
    channel = socket.socket(fileno=fds["packets"])
    if request["role"] == "ordinary":
        _as_a_user(channel, request, held)
    kind: type[Worker] = Worker
    if request.get("device", "cpu") != "cpu":
        from kernellab.verifier.cuda.worker import DeviceWorker

        kind = DeviceWorker
    worker = kind(channel, Control(fds["control"]), fds["done"], request)
    wire.post(channel, {"sandbox": held or ["process"], "harness": harness.addresses(worker)})
    worker.obey()


def _as_a_user(channel: Any, request: dict[str, Any], held: list[str]) -> None:
    """Has a shell run what the judge lays down (:mod:`~kernellab.verifier.worker.ordinary`) when it says so, with
    nothing of this process but its sandbox."""
    wire.post(channel, {"sandbox": held or ["process"], "harness": []})
    wire.take(channel)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    shell = f"{shlex.quote(sys.executable)} run.py; exit $?"
    os.execve("/bin/sh", ["sh", "-c", shell], request["environment"])
