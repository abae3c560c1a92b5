"""Answers the requests of another machine's client, by ssh or in a Dask worker."""

from __future__ import annotations

import os
import select
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import Any

from pydantic import TypeAdapter

from kernellab.content import installed
from kernellab.errors import KernellabError, TargetError
from kernellab.records import StageResult
from kernellab.target import Target
from kernellab.verifier.client import Verifier
from kernellab.verifier.protocol import wire


def answer(
    verifier: Verifier, message: dict[str, Any], progress: Callable[[StageResult], None] | None = None
) -> dict[str, Any]:
    """The judge's message for a request, or the error that it raises, with this machine's name."""
    from kernellab.dsls.machine import cpu_chip, detect_target

    host = socket.gethostname()
    request = message.get("request", {})
    try:
        if message.get("version") != installed():
            raise TargetError(
                f"{host} has kernellab {installed()}, and {message.get('version')} asks.", "Install the same on both."
            )
        if request["op"] == "hello":
            return {"host": host}
        if request["op"] == "target":
            target = detect_target(request["dsl"], request["chip"])
            return {"target": TypeAdapter(Target).dump_python(target, mode="json"), "host": host}
        if request.get("backend") == "cpu" and "chip" in request:
            request = {**request, "chip": cpu_chip().name}
        return {**verifier.relay(request, message["wanted"], message["deadline"], progress), "host": host}
    except KernellabError as error:
        trace = "\n".join(getattr(error, "__notes__", ()))
        return {
            "error": type(error).__name__, "message": error.message, "remedy": error.remedy, "trace": trace,
            "host": host,
        }  # fmt: skip


_worker: tuple[str, Verifier] | None = None


def at_worker(message: dict[str, Any], topic: str) -> dict[str, Any]:
    """Answer in a Dask worker, whose judge stays warm for its latest client; clients do not share one. An event of
    ``topic`` at the beginning and for each stage is its sign of life."""
    global _worker
    if _worker is None or _worker[0] != message["client"]:
        if _worker is not None:
            _worker[1].__exit__(None, None, None)
        _worker = message["client"], Verifier()
    parts: list[dict[str, Any]] = []
    worker = import_module("distributed").get_worker()

    def progress(part: StageResult) -> None:
        worker.log_event(topic, "stage")
        parts.append(part.model_dump(mode="json"))

    worker.log_event(topic, "begin")
    reply = answer(_worker[1], message, progress)
    return {**reply, "parts": parts}


class _Stream:
    """Two file descriptors as the stream that :mod:`wire` reads and writes."""

    def __init__(self, read: int, write: int) -> None:
        self._read, self._write = read, write

    def recv(self, count: int) -> bytes:
        return os.read(self._read, count)

    def sendall(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._write, data) :]


def main() -> None:
    """Answer requests on standard input until it ends."""
    stream: Any = _Stream(os.dup(0), os.dup(1))
    os.dup2(2, 1)  # printed text must not reach the answer stream
    threading.Thread(target=_end_with_connection, daemon=True).start()
    with Verifier() as verifier, suppress(BrokenPipeError):
        while (message := wire.receive(stream)) is not None:
            wire.send(
                stream,
                answer(verifier, message, lambda part: wire.send(stream, {"progress": part.model_dump(mode="json")})),
            )


def _end_with_connection() -> None:
    """End this process, and the judge with it, when the connection ends: nothing waits for the verdict any more."""
    poll = select.poll()
    poll.register(0, select.POLLHUP | select.POLLRDHUP)
    poll.poll()
    time.sleep(1.0)  # an orderly shutdown has finished by then
    os._exit(0)


if __name__ == "__main__":
    main()
