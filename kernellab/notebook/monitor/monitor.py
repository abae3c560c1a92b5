"""The monitor: one anywidget a run, which follows the run's stream (widgets/src/monitor/protocol.ts).

Rows go out as they change, each change once; a page that was loaded later, or that missed a message, sees by the
trait ``version`` that it lacks some and asks for them. So 5,000 candidates cost no more a second than fifty.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from html import escape
from typing import Any

import anywidget
import traitlets

from kernellab.errors import KernellabError
from kernellab.evolve.report import part
from kernellab.evolve.run import Run
from kernellab.evolve.summary import summary, words
from kernellab.notebook.board.publisher import Publisher
from kernellab.notebook.board.workbench import STATIC
from kernellab.notebook.monitor.commands import Desk, carry_out
from kernellab.notebook.monitor.follow import Follower
from kernellab.notebook.monitor.head import figures, head
from kernellab.notebook.monitor.messages import Messages
from kernellab.notebook.monitor.queries import answer
from kernellab.notebook.monitor.rows import MOST, rows

log = logging.getLogger("kernellab.notebook")

BUNDLE = STATIC / "monitor.js"
_UNBUILT = """export default {
  render({ el }) { el.textContent = "kernellab's front end is not built: run `make widgets`, restart the kernel."; },
};"""
#: seconds between two looks at a stream that another process writes
LOOK = 0.3
#: seconds between two computations of what is known of the whole run
SLOW = 1.0


class Monitor(anywidget.AnyWidget):
    """The traits are the protocol's. ``opened`` opens a candidate in a workbench and says where it is."""

    _esm = BUNDLE if BUNDLE.exists() else _UNBUILT
    _css = STATIC / "monitor.css" if BUNDLE.exists() else ""

    head = traitlets.Dict().tag(sync=True)
    figures = traitlets.Dict().tag(sync=True)
    version = traitlets.Int().tag(sync=True)
    beat = traitlets.Int().tag(sync=True)

    def __init__(self, run: Run, opened: Callable[[Run, int], str]) -> None:
        self._closed = True
        self.run = run
        self._follower = Follower(run.workspace, run.id)
        self._message = ""
        self._computed = time.monotonic()
        self._heard = 0.0
        self._stale = False
        super().__init__(
            head=dict(head(self._follower, run.works_here, run.worker)), figures=dict(figures(self._follower)),
            version=self._follower.version,
        )  # fmt: skip
        desk = Desk(run, lambda number: opened(run, number))
        self._messages = Messages(
            lambda message: self.send(message),
            lambda body: carry_out(desk, body),
            lambda body: answer(self._follower, body),
            self._told,
        )
        self._ended = threading.Event()
        self._publisher = Publisher(self._publish, beat=self._tick, failed=self._failed)
        self._looks = threading.Thread(target=self._look, name="kernellab-monitor", daemon=True)
        run.watch(self._publisher.poke)
        self.on_msg(self._messages.take)
        self._closed = False
        self._looks.start()

    @property
    def closed(self) -> bool:
        return self._closed

    def __repr__(self) -> str:
        with self._follower.lock:
            return words(summary(self.run.id, self._follower.state))

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """The view, and for readers without a front end the last state as text and as HTML."""
        bundle = super()._repr_mimebundle_(**kwargs)
        if bundle is None:
            return None
        data, metadata = bundle
        with self._follower.lock:
            state = self._follower.state
            # while it runs the same on every machine, so that saved notebooks compare
            going = f"The search {state.begun.name} is running."
            text = repr(self) if state.status.ended else going
            html = part(self.run.id, state) if state.status.ended else f"<p>{escape(going)}</p>"
        return {**data, "text/plain": text, "text/html": html}, metadata

    def close(self) -> None:
        """The view's end; the run goes on."""
        if self._closed:  # also called when the object is collected, perhaps half made
            return
        self._closed = True
        self._ended.set()
        self._publisher.close()
        self._messages.close()
        self._follower.close()
        super().close()

    # -- state goes out ------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        """Another process says nothing here when it writes."""
        while not self._ended.wait(LOOK):
            if not self.run.works_here and not self._follower.state.status.ended:
                self._publisher.poke()

    def _publish(self) -> None:
        follower = self._follower
        new = follower.update()
        if new:
            self._stale = True
        self._send_rows()
        with self.hold_sync(), follower.lock:
            shown = dict(head(follower, self.run.works_here, self.run.worker, self._message))
            if shown != self.head:
                self.head = shown
            due = time.monotonic() - self._computed >= SLOW or follower.state.status.ended
            if self._stale and due:
                self.figures = dict(figures(follower))
                self._stale, self._computed = False, time.monotonic()
            # one that only looks is never idle, and must be heard all the same
            if new or time.monotonic() - self._heard >= SLOW:
                self._tick()
        if self._stale:
            self._publisher.poke()

    def _send_rows(self) -> None:
        """The rows that changed since the last time, in parts; the front end compares the version afterwards."""
        while self.version < self._follower.version:
            found = rows(self._follower, self.version)
            if self.version or len(found["rows"]) <= MOST:
                self.send({"kind": "rows", **found})
            self.version = found["version"]

    def _tick(self) -> None:
        self._heard = time.monotonic()
        self.beat += 1

    def _told(self, error: str) -> None:
        self._message = error
        self._publisher.poke()

    def _failed(self, error: Exception) -> None:
        said = str(error) if isinstance(error, KernellabError) else f"{type(error).__name__}: {error}"
        log.error("the monitor of %s could not be drawn", self.run.id, exc_info=error)
        self.head = {**self.head, "message": f"The view broke: {said}"}
