"""Where the values of a sketch are computed: in a worker (:mod:`~kernellab.sketch.run.server`), never in this process.

A worker is for one sketch: :func:`one_worker` is around the calls that belong to it, and what a sketch leaves behind in
its worker is gone before the next one. A worker that crashes, takes too long or too much memory is one sentence about
the sketch."""

from __future__ import annotations

import atexit
import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from math import inf
from typing import Any

from kernellab.content import module_command
from kernellab.errors import NotRunnable, SketchError, lasting
from kernellab.sandbox.environment import clean_environment
from kernellab.sandbox.sandbox import contains
from kernellab.sketch.run import messages

#: most bytes of a request to the server
MOST_REQUEST = 4096
#: most seconds of the processor's time of a call that names no fewer
MOST_SECONDS = 60.0
#: what a call may use over its time, in a share and in seconds; and of the clock, since the machine may be busy
_SHARE, _MORE, _BUSY, _WAIT = 1.5, 2.0, 10.0, 30.0
#: seconds of the clock without one of the processor's after which a worker waits for nothing
_IDLE = 10.0
#: seconds of silence after which a worker's time is looked at; for the server's first and other answers
_LOOK, _START, _ANSWER = 0.25, 120.0, 30.0
#: seconds without a sketch after which the server ends: it holds 150 MB, and starts again in two
IDLE_SECONDS = 45.0
_AGAIN = "Change what it computes there, and try it again."


class OutOfTime(NotRunnable):
    """The deadline of a run has passed; its outputs are unknown."""


#: the errors that a worker may answer with, the most specific first
ERRORS: dict[str, type[SketchError]] = {
    "OutOfTime": OutOfTime,
    "NotRunnable": NotRunnable,
    "SketchError": SketchError,
}

_here = False
_local = threading.local()


def compute_here() -> None:
    """From now on this process computes sketches itself: it is a worker, confined like a candidate's."""
    global _here
    _here = True


def is_here() -> bool:
    """Is this process a worker?"""
    return _here


def used() -> float:
    """Return this thread's time of the processor in seconds, with that of the workers that computed for it."""
    return time.thread_time() + float(getattr(_local, "seconds", 0.0))


def _count(seconds: float) -> None:
    _local.seconds = float(getattr(_local, "seconds", 0.0)) + seconds


@contextmanager
def one_worker() -> Iterator[None]:
    """Calls of :func:`compute` inside are about one sketch and share a worker, which ends with the context."""
    if _here or getattr(_local, "worker", None) is not None:
        yield
        return
    _local.worker = worker = _Worker()
    try:
        yield
    finally:
        _local.worker = None
        worker.close()


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """What this thread and its workers compute inside may take ``seconds`` of the processor's time together: a call of
    :func:`compute` after them raises OutOfTime."""
    before = getattr(_local, "until", inf)
    _local.until = min(before, used() + seconds)
    try:
        yield
    finally:
        _local.until = before


def compute(
    function: Callable[..., Any],
    *arguments: Any,
    seconds: float = MOST_SECONDS,
    most_bytes: int = 0,
    free: bool = False,
) -> Any:
    """Return what a module's ``function`` of ours returns for ``arguments`` in a worker: numbers, texts, lists, objects
    and tensors of at most ``most_bytes``. What it returns may be anything of that kind: its caller looks at it.

    ``seconds`` of the processor's time are given. ``free``: the sketch names operations of ATen, which are computed in
    a sandbox only.

    Raises:
        SketchError: as ``function``; the sketch ended the worker.
        NotRunnable: the same; it took too long; there is no worker, or no sandbox.
    """
    if _here:
        return function(*arguments)
    left = getattr(_local, "until", inf) - used()
    if left <= 0:
        raise OutOfTime("The time in which this sketch is computed is over.", _AGAIN)
    with one_worker():
        worker: _Worker = _local.worker
        answer = worker.call(function, arguments, min(seconds, MOST_SECONDS, left), most_bytes, free)
    kind = ERRORS.get(str(answer.get("error", "")))
    if kind is not None:
        raise kind(str(answer.get("message", "")), str(answer.get("remedy", "")))
    return answer.get("value")


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


def spoiled(how: str = "it answers what no sketch computes") -> SketchError:
    """Return the error of a sketch whose worker answers nonsense."""
    return SketchError(f"Computing the sketch spoiled the memory of its process: {how}.", _AGAIN)


class _Late(Exception):
    """A worker has used all of its time."""


class _Worker:
    """One worker, which is forked at its first call."""

    def __init__(self) -> None:
        self.channel: socket.socket | None = None
        self.server: _Server | None = None
        self.number = 0
        self.kept = messages.Kept()
        #: what ended it: each later call says the same
        self.ended: tuple[type[SketchError], str, str] | None = None
        begin()

    def call(
        self, function: Callable[..., Any], arguments: tuple[Any, ...], seconds: float, most_bytes: int, free: bool
    ) -> dict[str, Any]:
        """Return the worker's answer. Raises SketchError, NotRunnable."""
        import torch

        if self.ended is None and self.channel is None:
            self._begin()
        if self.ended is None and free and self.server is not None and not self.server.is_contained:
            what = "This machine has no sandbox in which an operation that a sketch names could be computed."
            self.ended = NotRunnable, what, "`kernellab doctor` says what is missing; or use the sketch's operations."
        if self.ended is not None:
            raise self.ended[0](*self.ended[1:])
        clock = _Clock(self, seconds, torch.get_num_threads())
        before = clock.used() or 0.0
        try:
            messages.send_call(clock.send, self.kept, on_threads, (torch.get_num_threads(), function, arguments))
            answer = messages.take_answer(clock.fill, most_bytes)
        except _Late:
            _count(clock.last - clock.first)
            what = f"Computing the sketch took more than {lasting(seconds)}, and was ended."
            self._end(OutOfTime, what)
        except (OSError, EOFError):
            self._end(*self._cause())
        except messages.Malformed as error:
            self._end(SketchError, spoiled(str(error)).message)
        except RecursionError:
            self._end(NotRunnable, "The sketch is nested too deeply to compute it.")
        except BaseException:
            self._end(NotRunnable, "Computing the sketch was interrupted.", raising=False)
            raise
        else:
            told = answer.get("seconds")
            after = (clock.used() or 0.0) if not isinstance(told, float) else before + max(0.0, told)
            _count(min(after - before, clock.elapsed))
            return answer
        raise AssertionError("unreachable")

    def _begin(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            for last in (False, True):
                try:
                    self.server = _running()
                    self.number = int(self.server.request({"begin": 1}, [theirs.fileno()])["worker"])
                    break
                except (OSError, ValueError, KeyError):
                    shut()
                    if last:
                        ours.close()
                        raise NotRunnable(
                            "The process that computes sketches does not start.",
                            "`kernellab doctor` says what it needs.",
                        ) from None
        self.channel = ours

    def _cause(self) -> tuple[type[SketchError], str]:
        """Return what its process ended with."""
        try:
            code = self.server.request({"end": self.number, "patience": 1.0})["code"] if self.server else None
        except (OSError, ValueError, KeyError):
            self.number = 0
            return NotRunnable, "The process that computes sketches has ended."
        self.number = 0
        if code == -signal.SIGKILL:
            return NotRunnable, "The machine ended the process that computed the sketch: it has too little memory."
        if isinstance(code, int) and code < 0:
            with suppress(ValueError):
                return SketchError, f"Computing the sketch ended its process with {signal.Signals(-code).name}."
        return SketchError, "Computing the sketch ended its process."

    def _end(self, kind: type[SketchError], what: str, raising: bool = True) -> None:
        self.close()
        self.ended = kind, what, _AGAIN
        if raising:
            raise kind(what, _AGAIN) from None

    def close(self) -> None:
        """End the worker."""
        if self.channel is not None:
            self.channel.close()
            self.channel = None
        if self.number and self.server is not None:
            number, self.number = self.number, 0
            with suppress(OSError, ValueError):
                self.server.request({"end": number})


def on_threads(count: int, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """Call ``function`` in a worker, with as many threads as in the process that asks."""
    import torch

    if torch.get_num_threads() != count:
        torch.set_num_threads(count)
    return function(*arguments)


class _Clock:
    """Moves bytes to and from a worker while it has time left."""

    def __init__(self, worker: _Worker, seconds: float, threads: int) -> None:
        self.worker = worker
        self.start = self.moved = time.monotonic()
        self.first = self.last = 0.0
        self.looked = False
        self.most = (_SHARE * max(seconds, 0.0) + _MORE) * max(1, threads)
        self.longest = _BUSY * self.most + _WAIT
        assert worker.channel is not None
        self.channel = worker.channel
        self.channel.settimeout(_LOOK)

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self.start

    def used(self) -> float | None:
        """Return the worker's seconds of the processor, once a call has been silent for some time; None: unknown."""
        if not self.looked:
            return 0.0
        assert self.worker.server is not None
        seconds = self.worker.server.request({"look": self.worker.number})["seconds"]
        return None if seconds is None else float(seconds)

    def look(self) -> None:
        """Raise _Late where the time is over, or the worker does nothing."""
        if self.elapsed > self.longest:
            raise _Late
        is_first, self.looked = not self.looked, True
        used = self.used()
        if used is None:
            return
        if is_first:
            self.first = self.last = used
        if used > self.last:
            self.last, self.moved = used, time.monotonic()
        if used - self.first > self.most or time.monotonic() - self.moved > _IDLE:
            raise _Late

    def send(self, part: memoryview) -> None:
        while len(part):
            try:
                part = part[self.channel.send(part) :]
            except TimeoutError:
                self.look()

    def fill(self, part: memoryview) -> None:
        while len(part):
            try:
                count = self.channel.recv_into(part)
            except TimeoutError:
                self.look()
                continue
            if not count:
                raise EOFError
            part = part[count:]


class _Server:
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
                    self.channel.settimeout(_START)
                    self.held = [str(part) for part in self._next()["held"]]
                self.channel.settimeout(_ANSWER)
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
_server: _Server | None = None


def _running() -> _Server:
    global _server
    with _starting:
        if _server is None or not _server.is_usable():
            if _server is not None:
                _server.close()
            _server = _Server()
        return _server


def begin() -> None:
    """Start the server, without waiting for it: it imports torch meanwhile."""
    with suppress(OSError):  # the first call says so
        _running()


atexit.register(shut)

__all__ = [
    "ERRORS",
    "MOST_SECONDS",
    "OutOfTime",
    "begin",
    "compute",
    "compute_here",
    "is_here",
    "one_worker",
    "rest",
    "shut",
    "spoiled",
    "used",
    "within",
]
