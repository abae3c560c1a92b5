"""State goes out at most ten times a second, the newest wins, the last one always arrives.

The notebook server drops messages silently above 1,000 a second, so no event may become a message by itself.
"""

from __future__ import annotations

import threading
from collections.abc import Callable


class Publisher:
    """Calls ``publish`` on a separate thread after :meth:`poke`, at most once every ``period`` seconds.

    ``beat`` is called when nothing was published for ``idle`` seconds: a front end that hears neither knows that the
    kernel is gone. ``failed`` gets what ``publish`` raised; the thread lives on.
    """

    def __init__(
        self,
        publish: Callable[[], object],
        *,
        beat: Callable[[], object],
        failed: Callable[[Exception], object],
        period: float = 0.1,
        idle: float = 3.0,
    ) -> None:
        self._publish = publish
        self._beat = beat
        self._failed = failed
        self._period = period
        self._idle = idle
        self._due = threading.Event()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kernellab-publisher", daemon=True)
        self._thread.start()

    def poke(self) -> None:
        """There is something new. Returns at once; any thread."""
        self._due.set()

    def close(self, timeout: float = 1.0) -> None:
        """Publish what is due and end the thread."""
        self._closed.set()
        self._due.set()
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout)

    def _run(self) -> None:
        while True:
            new = self._due.wait(self._idle)
            self._due.clear()
            try:
                if new:
                    self._publish()
                else:
                    self._beat()
            except Exception as error:
                self._failed(error)
            if self._closed.is_set() and not self._due.is_set():
                return
            self._closed.wait(self._period)
