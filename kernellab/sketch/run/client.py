"""The process that forks the workers of sketches (:mod:`~kernellab.sketch.run.server`), as seen from this one.

It is started when it is first needed, answers one request at a time as lines of JSON, and ends after some time without
one."""

from __future__ import annotations

import atexit
import json
import os
import socket
import subprocess
import threading
from contextlib import suppress
from typing import Any

from kernellab.content import module_command
from kernellab.sandbox.environment import clean_environment
from kernellab.sandbox.sandbox import contains

#: most bytes of a request to the server
MOST_REQUEST = 4096
#: seconds without a sketch after which the server ends: it holds 150 MB, and starts again in two
IDLE_SECONDS = 45.0
#: most seconds until the server's first answer, and until another
_START_SECONDS, _ANSWER_SECONDS = 120.0, 30.0


class Server:
    """The process that forks workers: it is started once, and answers one request at a time."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        self.lock = threading.Lock()
        self.held: list[str] | None = None
        #: workers that have begun and not ended
        self.workers = 0
        #: was a request interrupted before its answer was read?
        self.broken = False
        ours, theirs = socket.socketpair()
        with theirs:
            self.process = subprocess.Popen(
                module_command("kernellab.sketch.run.server", str(theirs.fileno()), str(IDLE_SECONDS)),
                env=clean_environment({"OMP_WAIT_POLICY": "PASSIVE", "OPENBLAS_NUM_THREADS": "1"}),
                pass_fds=(theirs.fileno(),), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # an interrupt is for the process that asks
            )  # fmt: skip
        self.channel = ours
        self.answers = ours.makefile("rb")

    @property
    def is_contained(self) -> bool:
        """Do its workers have a sandbox that keeps the user's files from them?"""
        return contains(", ".join(self.held or ()))

    def is_usable(self) -> bool:
        return self.owner == os.getpid() and not self.broken and self.process.poll() is None

    def request(self, message: dict[str, Any], fds: list[int] | None = None) -> dict[str, Any]:
        """Return its answer. Raises OSError, ValueError: it has ended, or is silent."""
        with self.lock:
            if self.broken:
                raise OSError("an answer of the server was not read")
            try:
                if self.held is None:
                    self.channel.settimeout(_START_SECONDS)
                    self.held = [str(part) for part in self._next()["held"]]
                self.channel.settimeout(_ANSWER_SECONDS)
                socket.send_fds(self.channel, [json.dumps(message).encode()], fds or [])
                answer = self._next()
                self.workers += ("begin" in message) - ("end" in message)
                return answer
            except BaseException:
                # the next answer would be this one's
                self.broken = True
                raise

    def _next(self) -> dict[str, Any]:
        line = self.answers.readline(MOST_REQUEST)
        if not line:
            raise OSError("the server has ended")
        return dict(json.loads(line))

    def close(self) -> None:
        if self.owner != os.getpid():
            return  # of the process that this one was forked from
        for end in (self.answers, self.channel, self.process.stdin):
            with suppress(OSError):
                if end is not None:
                    end.close()
        try:
            self.process.wait(5.0)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


_starting = threading.Lock()
_server: Server | None = None


def running() -> Server:
    """Return the server, which is started if there is none that can be used."""
    global _server
    with _starting:
        if _server is None or not _server.is_usable():
            if _server is not None:
                _server.close()
            _server = Server()
        return _server


def shut() -> None:
    """End the server, which is started again when a sketch is computed."""
    global _server
    with _starting:
        server, _server = _server, None
        if server is not None:
            server.close()


def rest() -> None:
    """End the server where no sketch is computed: another program needs its memory."""
    global _server
    with _starting:
        if _server is None or _server.workers or not _server.is_usable():
            return
        server, _server = _server, None
        server.close()


def begin() -> None:
    """Start the server, without waiting for it: it imports torch meanwhile."""
    with suppress(OSError):  # the first call says so
        running()


atexit.register(shut)
