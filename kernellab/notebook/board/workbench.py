"""The workbench: one anywidget a session, whose traits hold all that is drawn (``kernellab/notebook/protocol.py``).

State goes out through one publisher, at most ten times a second: ``head`` and ``partial`` each time, the others when
the state, the shown turn or what is known of the task is another one. A verification that runs changes ``detail`` too.
Decisions and questions come in as messages (``board/commands.py``, ``board/queries.py``).
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple

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
from kernellab.notebook.views.progress import Activity
from kernellab.notebook.views.roofline import roofline
from kernellab.notebook.views.rows import difference, turn_rows
from kernellab.notebook.widget import Widget
from kernellab.session.engine.approval import PREDICATE
from kernellab.session.record.records import SessionStatus

if TYPE_CHECKING:
    from kernellab.session import Session
    from kernellab.session.record.state import State

#: a sketch to read in the background, since the first one that is read makes the parser
_FIRST_SKETCH = """sketch warm {
    symbols: N;
    tensors: X[N]: f32; Y[N]: f32 out;
    load(X[0:N] -> x)
    store(x -> Y[0:N])
}
"""


class _Drawn(NamedTuple):
    """What the traits were last set from."""

    state: State
    shown: str
    facts: Facts

    def is_same(self, other: _Drawn | None) -> bool:
        """Whether these are the same objects: to compare their contents costs more than to draw them."""
        return (
            other is not None and self.state is other.state and self.shown == other.shown and self.facts is other.facts
        )


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
        #: The state that ``_message`` speaks of.
        self._message_state: State | None = None
        #: Those of teaching mode; None outside of it.
        self._predictions: Predictions | None = None
        #: The approval policy that the person chose, where teaching mode puts a predicate in its place.
        self._approval: str | None = None
        self._drawn: _Drawn | None = None
        state = session.state
        super().__init__(head=self._head(state), turns=turn_rows(state), **self._of_state(state))
        self._start(
            Messages(
                lambda message: self.send(message), self._act, self._ask, self._on_decision, subject="session",
                quick=QUICK,
            )
        )  # fmt: skip
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
        self._predictions.record(self._session.state, expected, reason)
        self._session.approve()

    # -- state goes out ------------------------------------------------------------------------------------------------

    def _on_decision(self, error: str) -> None:
        self._message_state = self._session.state
        super()._on_decision(error)

    def _head(self, state: State) -> Head:
        if self._message_state is not None and self._message_state is not state:
            # who decided has heard it; to others, and later, it would speak of what is no more
            self._message, self._message_state = "", None
        session, trace = self._session, self._session.trace
        shown = head(
            state, self.shown, self._facts, message=self._message, ledger=trace.ledger(),
            predictions=self._predictions,
            activity=Activity(trace.stages, trace.partial, trace.doing, session.timings.timed),
        )  # fmt: skip
        # a predicate stands behind it in teaching mode; the person's word is what they chose
        return {**shown, "approval": self._approval} if self._approval else shown

    def _of_state(self, state: State) -> dict[str, Any]:
        """The traits that change with the state, the shown turn and the facts alone, besides the rows."""
        return {
            "detail": self._detail(state),
            "roofline": {**roofline(state, self._facts)},
            "texts": {**long.texts(state, self.shown)},
        }

    def _detail(self, state: State) -> dict[str, Any]:
        # a claim is checked against the sketch's cost too: not before the task is known here
        claims = self._session.trace.claims if self._facts.task else None
        return {**detail(state, self.shown, self._session.trace.stages, claims)}

    def _publish(self) -> None:
        state = self._session.state
        drawn = _Drawn(state, self.shown, self._facts)
        with self.hold_sync():
            self.head = {**self._head(state)}
            self.partial = {**long.partial(state, self._session.trace.partial)}
            if not drawn.is_same(self._drawn):
                self._publish_rows(state)
                self.saved = self._saved()[1] if state.status.ended else ""
                for name, value in self._of_state(state).items():
                    self.set_trait(name, value)
            elif self._session.trace.stages:
                self.detail = self._detail(state)
            self._drawn = drawn

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
        # not while somebody types
        self._messages.submit_quick(checked, _FIRST_SKETCH, self._facts)

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
