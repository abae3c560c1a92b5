"""What reading one answer may cost: a length, and the processor's time. A class is graded one after another."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from kernellab.errors import Overtime
from kernellab.sketch.run.confined import used, within

#: characters of an answer; the longest reference answer has 1 536
MOST_TEXT = 20_000
#: seconds of all threads' time between two looks at the main thread's
_LOOKS = 0.5


def too_long(text: str) -> str:
    """What is said of an answer of more than :data:`MOST_TEXT` characters; "" for a shorter one."""
    if len(text) <= MOST_TEXT:
        return ""
    return f"The cell has {len(text)} characters, and at most {MOST_TEXT} are read: leave out what it does not need."


class _Ended(BaseException):
    """Nothing that catches errors catches it."""


@contextmanager
def processor_time(seconds: float) -> Iterator[None]:
    """What is within may use ``seconds`` of processor time: that of the main thread, and of the workers that compute
    sketches for it; other threads have no limit.

    Raises:
        Overtime: it used more.
    """
    if threading.current_thread() is not threading.main_thread() or signal.getitimer(signal.ITIMER_PROF)[0]:
        yield  # signals reach the main thread alone; an outer limit holds
        return
    sentence = f"Reading the answer takes more than {seconds:.0f} s of the processor's time."

    def end(number: int, frame: FrameType | None) -> None:
        if time.thread_time() - began > seconds:
            raise _Ended

    began, with_workers = time.thread_time(), used()
    before = signal.signal(signal.SIGPROF, end)
    signal.setitimer(signal.ITIMER_PROF, min(seconds, _LOOKS), _LOOKS)
    try:
        try:
            with within(seconds):
                yield
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
    except _Ended:
        raise Overtime(sentence, "Write it shorter.") from None
    finally:
        signal.signal(signal.SIGPROF, before)
    if used() - with_workers > seconds:
        raise Overtime(sentence, "Write it shorter.")
