"""Where the values of a sketch are computed: in a worker (:mod:`~kernellab.sketch.run.server`), never in this process.

A worker is for one sketch: :func:`one_worker` is around the calls that belong to it, and what a sketch leaves behind in
its worker is gone before the next one. A worker that crashes, takes too long or too much memory is one sentence about
the sketch."""

from __future__ import annotations

import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from math import inf
from typing import Any

from kernellab.errors import NotRunnable, SketchError, lasting
from kernellab.sketch.run import messages
from kernellab.sketch.run.client import Server, begin, rest, running, shut

#: most seconds of the processor's time of a call that names no fewer
MOST_SECONDS = 60.0
#: CPU time that a call may use over its seconds, as a factor and in seconds. Chosen, not measured, as the next three
_OVERTIME_FACTOR, _OVERTIME_SECONDS = 1.5, 2.0
#: time of the clock for that CPU time, since the machine may be busy, as a factor and in seconds
_BUSY_FACTOR, _BUSY_SECONDS = 10.0, 30.0
#: seconds of the clock without one of the processor's after which a worker waits for nothing
_IDLE_SECONDS = 10.0
#: seconds of silence after which a worker's time is looked at
_LOOK_SECONDS = 0.25
_AGAIN = "Change what it computes there, and try it again."


class OutOfTime(NotRunnable):
    """The deadline of a run has passed; its outputs are unknown."""


#: the errors that a worker may answer with, the most specific first
ERRORS: dict[str, type[SketchError]] = {
    "OutOfTime": OutOfTime,
    "NotRunnable": NotRunnable,
    "SketchError": SketchError,
}

#: is this process a worker?
_here = False
#: of each thread: ``worker``, that of its sketch; ``seconds`` that workers have used for it; ``until``, when its time
#: is over, as :func:`used` counts
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


def spoiled(how: str = "it answers what no sketch computes") -> SketchError:
    """Return the error of a sketch whose worker answers nonsense."""
    return SketchError(f"Computing the sketch spoiled the memory of its process: {how}.", _AGAIN)


class _Late(Exception):
    """A worker has used all of its time."""


class _Worker:
    """One worker, which is forked at its first call."""

    def __init__(self) -> None:
        self.channel: socket.socket | None = None
        self.server: Server | None = None
        self.number = 0
        self.sent = messages.SentPrograms()
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
            messages.send_call(clock.send, self.sent, on_threads, (torch.get_num_threads(), function, arguments))
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
            reported = answer.get("seconds")
            after = before + max(0.0, reported) if isinstance(reported, float) else clock.used() or 0.0
            _count(min(after - before, clock.elapsed))
            return answer
        raise AssertionError("unreachable")

    def _begin(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            for last in (False, True):
                try:
                    self.server = running()
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
        self.most = (_OVERTIME_FACTOR * max(seconds, 0.0) + _OVERTIME_SECONDS) * max(1, threads)
        self.longest = _BUSY_FACTOR * self.most + _BUSY_SECONDS
        assert worker.channel is not None
        self.channel = worker.channel
        self.channel.settimeout(_LOOK_SECONDS)

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
        if used - self.first > self.most or time.monotonic() - self.moved > _IDLE_SECONDS:
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
