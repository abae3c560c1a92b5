"""The workbench: one anywidget a session, whose traits hold all that is drawn (``kernellab/notebook/protocol.py``).

State goes out through one publisher, at most ten times a second.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

import traitlets

from kernellab.errors import SessionError
from kernellab.notebook.board.body import Body
from kernellab.notebook.board.predictions import Predictions, teaching_stops
from kernellab.notebook.language.check import checked
from kernellab.notebook.magics.insert import offer
from kernellab.notebook.messages import QUICK, Messages, tried
from kernellab.notebook.protocol import Head
from kernellab.notebook.saved.receipt import summary
from kernellab.notebook.saved.snapshot import snapshot
from kernellab.notebook.views import texts as long
from kernellab.notebook.views.detail import detail
from kernellab.notebook.views.facts import Facts, gather
from kernellab.notebook.views.head import head
from kernellab.notebook.views.roofline import roofline
from kernellab.notebook.views.rows import difference, turn_rows
from kernellab.notebook.widget import Widget
from kernellab.session.engine.approval import PREDICATE
from kernellab.session.record.records import SessionStatus

if TYPE_CHECKING:
    from kernellab.session import Session
    from kernellab.session.record.state import State

#: the first sketch that is read makes the parser
_WARM = """sketch warm {
    symbols: N;
    tensors: X[N]: f32; Y[N]: f32 out;
    load(X[0:N] -> x)
    store(x -> Y[0:N])
}
"""


class Workbench(Widget, bundle="workbench"):
    """The traits are the protocol's; ``shown`` is the turn looked at, "" for the head."""

    turns: traitlets.List[Any] = traitlets.List().tag(sync=True)
    changed: traitlets.List[Any] = traitlets.List().tag(sync=True)
    detail = traitlets.Dict().tag(sync=True)
    roofline = traitlets.Dict().tag(sync=True)
    texts = traitlets.Dict().tag(sync=True)
    partial = traitlets.Dict(dict(long.NO_PARTIAL)).tag(sync=True)
    shown = traitlets.Unicode().tag(sync=True)

    def __init__(self, session: Session, teaching: bool = False) -> None:
        self._session = session
        self._facts = Facts()
        self._message = ""
        self._told_at: State | None = None
        self._predictions: Predictions | None = None
        self._approval: str | None = None
        self._drawn: tuple[Any, ...] = ()
        super().__init__(**self._first(session.state))
        self._start(
            Messages(
                lambda message: self.send(message), self._act, self._ask, self._told, subject="session", quick=QUICK
            )
        )
        self._unsubscribe = session.subscribe(lambda *_: self._publisher.poke())
        self.observe(lambda _: self._publisher.poke(), names=["shown"])
        if teaching:
            self._message = tried(lambda: self.teach(True), "session")[1]
        self._messages.submit(self._gather)
        self._publisher.poke()

    def __repr__(self) -> str:
        return summary(self._session.state)

    def _saved(self) -> tuple[str, str]:
        state = self._session.state
        # while it runs the same on every machine, so that saved notebooks compare
        html = f"<p>{escape(repr(self))}</p>" if state.status is SessionStatus.RUNNING else snapshot(state)
        return repr(self), html

    def _leave(self) -> None:
        self._unsubscribe()

    def teach(self, on: bool) -> None:
        """Ask for a prediction before each measurement, or stop asking. Raises SessionError."""
        if on == (self._predictions is not None):
            return
        approval = self._session.state.approval
        base = "none" if approval == PREDICATE else approval
        self._predictions = Predictions(self._session.workspace, self._session.id) if on else None
        self._set_approval(self._approval or base)
        self._publisher.poke()

    def predict(self, expected: float | None, reason: str = "") -> None:
        """State the speedup that you expect of the kernel that waits to be measured; the measurement continues.

        Raises:
            SessionError: teaching mode is off, nothing waits for a prediction, or the number is not a speedup.
        """
        if self._predictions is None:
            raise SessionError("Teaching mode is off.", "Turn it on: %config KernelLab.teaching = True")
        self._predictions.state_it(self._session.state, expected, reason)
        self._session.approve()

    # -- state goes out ------------------------------------------------------------------------------------------------

    def _first(self, state: State) -> dict[str, Any]:
        rows = turn_rows(state)
        return {
            "head": self._head(state),
            "turns": rows,
            "detail": detail(state, "", self._session.trace.stages),
            "roofline": roofline(state, self._facts),
            "texts": long.texts(state, ""),
        }

    def _told(self, error: str) -> None:
        self._told_at = self._session.state
        super()._told(error)

    def _head(self, state: State) -> Head:
        if self._told_at is not None and self._told_at is not state:
            # who decided has heard it; to others, and later, it would speak of what is no more
            self._message, self._told_at = "", None
        shown = head(
            state, self.shown, self._facts, message=self._message, ledger=self._session.trace.ledger(),
            predictions=self._predictions, comparing=self._session.timings.current, stages=self._session.trace.stages,
            partial=self._session.trace.partial, said=self._session.trace.doing,
        )  # fmt: skip
        # a predicate stands behind it in teaching mode; the person's word is what they chose
        return {**shown, "approval": self._approval} if self._approval else shown

    def _publish(self) -> None:
        state = self._session.state
        stages = self._session.trace.stages
        with self.hold_sync():
            self.head = {**self._head(state)}
            drawn = (id(state), self.shown, id(self._facts))
            if drawn != self._drawn or stages:
                # a claim is checked against the sketch's cost too: not before the task is known here
                claims = self._session.trace.claims if self._facts.task else None
                self.detail = {**detail(state, self.shown, stages, claims)}
            if drawn != self._drawn:
                self._publish_rows(state)
                self.roofline = {**roofline(state, self._facts)}
                self.texts = {**long.texts(state, self.shown)}
                self.saved = self._saved()[1] if state.status.ended else ""
            self._drawn = (*drawn,)
            self.partial = {**long.partial(state, self._session.trace.partial)}
        self._state = state  # keeps the id from being used again

    def _publish_rows(self, state: State) -> None:
        rows = turn_rows(state)
        changed = difference(self.turns, rows)
        if changed is None:
            self.turns, self.changed = rows, []
        else:
            self.changed = changed

    def _gather(self) -> None:
        self._facts = gather(self._session)
        self._publisher.poke()
        # the first reading of a sketch makes the parser: not while somebody types
        self._messages.submit_quick(checked, _WARM, self._facts)

    # -- messages come in ----------------------------------------------------------------------------------------------

    def _act(self, body: Body) -> str:
        from kernellab.notebook.board.commands import Desk, carry_out

        return carry_out(Desk(self._session, self.shown, self.predict, self._set_approval, offer), body)

    def _ask(self, body: Body) -> Any:
        from kernellab.notebook.board.queries import Window, answer

        return answer(Window(self._session, self.shown, self._facts.measured(self._session.state)), body)

    def _set_approval(self, approval: str) -> None:
        if self._predictions is None:
            self._session.set_approval(approval)
            self._approval = None
            return
        self._session.set_approval(approval, teaching_stops(approval))
        self._approval = approval
