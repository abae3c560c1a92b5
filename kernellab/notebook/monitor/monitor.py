"""The monitor: one anywidget a run, which follows the run's stream (widgets/src/monitor/protocol.ts).

Rows go out as they change, each change once; a page that was loaded later, or that missed a message, sees by the
trait ``version`` that some are missing and asks for them. So 5,000 candidates cost no more a second than fifty.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from html import escape

import traitlets

from kernellab.evolve.jobs import target_of
from kernellab.evolve.report import part
from kernellab.evolve.run import Run
from kernellab.evolve.summary import summary, words
from kernellab.notebook.messages import QUICK, Messages
from kernellab.notebook.monitor.commands import Desk, carry_out
from kernellab.notebook.monitor.follow import Follower
from kernellab.notebook.monitor.head import figures, head
from kernellab.notebook.monitor.queries import Window, answer
from kernellab.notebook.monitor.rows import MOST, rows
from kernellab.notebook.views.facts import Facts, gathered
from kernellab.notebook.widget import Widget

#: seconds between two looks at a stream that another process writes
LOOK = 0.3
#: seconds between two computations of what is known of the whole run
SLOW = 1.0


class Monitor(Widget, bundle="monitor"):
    """The traits are the protocol's. ``opened`` opens a candidate in a workbench and says where it is."""

    figures = traitlets.Dict().tag(sync=True)
    version = traitlets.Int().tag(sync=True)

    def __init__(self, run: Run, opened: Callable[[Run, int], str]) -> None:
        self.run = run
        self._follower = Follower(run.workspace, run.id)
        self._computed = time.monotonic()
        self._stale = False
        self._known = Facts()
        super().__init__(
            head=dict(head(self._follower, run.works_here, run.worker)), figures=dict(figures(self._follower)),
            version=self._follower.version,
        )  # fmt: skip
        desk = Desk(run, lambda number: opened(run, number))
        self._ended = threading.Event()
        self._looks = threading.Thread(target=self._look, name="kernellab-monitor", daemon=True)
        self._start(
            Messages(
                lambda message: self.send(message),
                lambda body: carry_out(desk, body),
                lambda body: answer(Window(self._follower, self._facts), body),
                self._on_decision,
                subject="run",
                quick=QUICK,
            )
        )
        run.watch(self._publisher.poke)
        self._looks.start()

    def __repr__(self) -> str:
        with self._follower.lock:
            return words(summary(self.run.id, self._follower.state))

    def _facts(self) -> Facts:
        """What a sketch for it costs is known once somebody writes one: not all who watch do. The editor's thread."""
        if not self._known.gathered:
            begun = self.run.state.begun
            self._known = gathered(self.run.id, begun.text, begun.name, lambda: target_of(begun))
        with self._follower.lock:
            return self._known.measured(self._follower.state)

    def _saved(self) -> tuple[str, str]:
        with self._follower.lock:
            state = self._follower.state
            # the same on every machine, so that saved notebooks compare, and true after it has ended
            going = f"The search {state.begun.name} began here. Run the cell again to see how it stands."
            if state.status.ended:
                return repr(self), part(self.run.id, state)
            return going, f"<p>{escape(going)}</p>"

    def _leave(self) -> None:
        self._ended.set()
        self._follower.close()

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
                self.saved = part(self.run.id, follower.state) if follower.state.status.ended else ""
        if self._stale:
            self._publisher.poke()

    def _send_rows(self) -> None:
        """The rows that changed since the last time, in parts; the front end compares the version afterwards."""
        while self.version < self._follower.version:
            table = rows(self._follower, self.version)
            if self.version or len(table["rows"]) <= MOST:
                self.send({"kind": "rows", **table})
            self.version = table["version"]
