"""The workbench: one anywidget a session, whose traits hold all that is drawn (widgets/src/protocol.ts).

Which thread runs a callback, and whether it runs while a cell is busy, depends on the ipykernel version. So callbacks
only queue what was asked, and never raise; decisions, the editor's questions and long questions each have threads of
their own. State goes out through one publisher, at most ten times a second.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anywidget
import traitlets

from kernellab.errors import KernellabError, SessionError
from kernellab.notebook.board.predictions import Predictions, teaching_stops
from kernellab.notebook.board.publisher import Publisher
from kernellab.notebook.language.check import checked
from kernellab.notebook.magics.insert import offer
from kernellab.notebook.protocol import Head
from kernellab.notebook.saved.receipt import summary
from kernellab.notebook.saved.snapshot import snapshot
from kernellab.notebook.views import texts as long
from kernellab.notebook.views.detail import detail
from kernellab.notebook.views.facts import Facts, gather
from kernellab.notebook.views.head import head
from kernellab.notebook.views.roofline import roofline
from kernellab.notebook.views.rows import difference, turn_rows
from kernellab.session.record.records import SessionStatus

if TYPE_CHECKING:
    from kernellab.session import Session
    from kernellab.session.record.state import State

log = logging.getLogger("kernellab.notebook")

STATIC = Path(__file__).parent.parent / "static"
BUNDLE = STATIC / "workbench.js"
#: what is shown in a checkout whose front end was not built
_UNBUILT = """export default {
  render({ el }) { el.textContent = "kernellab's front end is not built: run `make widgets`, restart the kernel."; },
};"""
#: ids of decisions that are remembered, so that one which arrives twice is carried out once
_REMEMBERED = 512

#: the first sketch that is read makes the parser
_WARM = """sketch warm {
    symbols: N;
    tensors: X[N]: f32; Y[N]: f32 out;
    load(X[0:N] -> x)
    store(x -> Y[0:N])
}
"""

Message = dict[str, Any]


class Workbench(anywidget.AnyWidget):
    """The traits are the protocol's; ``shown`` is the turn looked at, "" for the head."""

    _esm = BUNDLE if BUNDLE.exists() else _UNBUILT
    _css = STATIC / "workbench.css" if BUNDLE.exists() else ""

    head = traitlets.Dict().tag(sync=True)
    turns: traitlets.List[Any] = traitlets.List().tag(sync=True)
    changed: traitlets.List[Any] = traitlets.List().tag(sync=True)
    detail = traitlets.Dict().tag(sync=True)
    roofline = traitlets.Dict().tag(sync=True)
    texts = traitlets.Dict().tag(sync=True)
    partial = traitlets.Dict(dict(long.NO_PARTIAL)).tag(sync=True)
    shown = traitlets.Unicode().tag(sync=True)
    beat = traitlets.Int().tag(sync=True)

    def __init__(self, session: Session, teaching: bool = False) -> None:
        self._closed = True
        self._session = session
        self._facts = Facts()
        self._message = ""
        self._predictions: Predictions | None = None
        self._approval: str | None = None
        self._drawn: tuple[Any, ...] = ()
        super().__init__(**self._first(session.state))
        self._done: OrderedDict[str, Message | None] = OrderedDict()
        self._checks: dict[str, str] = {}
        self._lock = threading.Lock()
        self._decisions = ThreadPoolExecutor(1, "kernellab-decisions")
        self._editor = ThreadPoolExecutor(1, "kernellab-editor")
        self._questions = ThreadPoolExecutor(2, "kernellab-questions")
        self._publisher = Publisher(self._publish, beat=self._tick, failed=self._failed)
        self._unsubscribe = session.subscribe(lambda *_: self._publisher.poke())
        self.observe(lambda _: self._publisher.poke(), names=["shown"])
        self.on_msg(self._on_message)
        self._closed = False
        if teaching:
            self._message = self._caught(lambda: self.teach(True))
        self._questions.submit(self._gather)
        self._publisher.poke()

    @property
    def closed(self) -> bool:
        return self._closed

    def __repr__(self) -> str:
        return summary(self._session.state)

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """The view, and for readers without a front end the last state as text and as HTML."""
        bundle = super()._repr_mimebundle_(**kwargs)
        if bundle is None:
            return None
        data, metadata = bundle
        state = self._session.state
        # while it runs the same on every machine, so that saved notebooks compare
        html = f"<p>{escape(repr(self))}</p>" if state.status is SessionStatus.RUNNING else snapshot(state)
        return {**data, "text/plain": repr(self), "text/html": html}, metadata

    def close(self) -> None:
        """The view's end; the session goes on."""
        if self._closed:  # also called when the object is collected, perhaps half made
            return
        self._closed = True
        self._unsubscribe()
        self._publisher.close()
        for threads in (self._decisions, self._editor, self._questions):
            threads.shutdown(wait=False, cancel_futures=True)
        super().close()

    def teach(self, on: bool) -> None:
        """Ask for a prediction before each measurement, or stop asking. Raises SessionError."""
        if on == (self._predictions is not None):
            return
        approval = self._session.state.approval
        base = approval if approval in ("none", "routing", "all") else "none"
        self._predictions = Predictions(self._session.workspace, self._session.id) if on else None
        self._set_approval(self._approval or base)
        self._publisher.poke()

    def predict(self, expected: float | None, reason: str = "") -> None:
        """State the speedup that you expect of the kernel that waits to be measured; the measurement goes on.

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
            "detail": detail(state, "", self._session.stages),
            "roofline": roofline(state, self._facts),
            "texts": long.texts(state, ""),
        }

    def _head(self, state: State) -> Head:
        shown = head(
            state, self.shown, self._facts, message=self._message, ledger=self._session.ledger(),
            predictions=self._predictions, comparing=self._session.comparing, stages=self._session.stages,
        )  # fmt: skip
        # a predicate stands behind it in teaching mode; the person's word is what they chose
        return {**shown, "approval": self._approval} if self._approval else shown

    def _publish(self) -> None:
        state = self._session.state
        stages = self._session.stages
        with self.hold_sync():
            self.head = {**self._head(state)}
            drawn = (id(state), self.shown, id(self._facts))
            if drawn != self._drawn or stages:
                # a claim is checked against the sketch's cost too: not before the task is known here
                claims = self._session.claims if self._facts.task else None
                self.detail = {**detail(state, self.shown, stages, claims)}
            if drawn != self._drawn:
                self._publish_rows(state)
                self.roofline = {**roofline(state, self._facts)}
                self.texts = {**long.texts(state, self.shown)}
            self._drawn = (*drawn,)
            self.partial = {**long.partial(state, self._session.partial)}
            self._tick()
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
        self._editor.submit(checked, _WARM, self._facts)

    def _tick(self) -> None:
        self.beat += 1

    def _failed(self, error: Exception) -> None:
        log.error("the view of %s could not be drawn", self._session.id, exc_info=error)
        self.head = {**self.head, "message": f"The view failed: {type(error).__name__}: {error}"}

    # -- messages come in ----------------------------------------------------------------------------------------------

    def _on_message(self, _widget: Any, content: Any, _buffers: Any) -> None:
        """On any thread: queue it."""
        try:
            found = content if isinstance(content, Mapping) else {}
            body, ident = found.get("body"), str(found.get("id", ""))
            if isinstance(body, Mapping) and "action" in body:
                self._decisions.submit(self._act, ident, dict(body))
            elif isinstance(body, Mapping) and "ask" in body:
                self._queue_question(ident, dict(body))
            else:
                self.send(
                    {
                        "kind": "done",
                        "id": ident,
                        "error": "The view sent something that is not a message. Reload the page.",
                    }
                )
        except RuntimeError:  # closed while the message was on its way
            log.info("a message for the closed view of %s", self._session.id)

    def _queue_question(self, ident: str, body: Message) -> None:
        from kernellab.notebook.board.queries import QUICK

        quick = body.get("ask") in QUICK
        if body.get("ask") == "check":
            with self._lock:
                self._checks[_client(ident)] = ident
        (self._editor if quick else self._questions).submit(self._answer, ident, body)

    def _act(self, ident: str, body: Message) -> None:
        from kernellab.notebook.board.commands import Desk, carry_out

        known = self._done.get(ident) if ident else None
        if known is not None:
            self.send(known)
            return
        reply: Message = {"kind": "done", "id": ident}
        desk = Desk(self._session, self.shown, self.predict, self._set_approval, offer)
        error = self._caught(lambda: reply.update(_noted(carry_out(desk, body))))
        if error:
            reply["error"] = error
        self._message = error
        self._done[ident] = reply
        while len(self._done) > _REMEMBERED:
            self._done.popitem(last=False)
        self.send(reply)
        self._publisher.poke()

    def _answer(self, ident: str, body: Message) -> None:
        from kernellab.notebook.board.queries import Window, answer

        reply: Message = {"kind": "answer", "id": ident}
        with self._lock:
            overtaken = body.get("ask") == "check" and self._checks.get(_client(ident), ident) != ident
        if overtaken:
            self.send({**reply, "error": "superseded"})
            return
        window = Window(self._session, self.shown, self._facts.measured(self._session.state))
        error = self._caught(lambda: reply.update(value=answer(window, body)))
        self.send({**reply, "error": error} if error else reply)

    def _caught(self, work: Callable[[], object]) -> str:
        """Nobody waits for these threads: what goes wrong becomes a sentence for the view."""
        try:
            work()
        except KernellabError as error:
            return error.told if error.details else str(error)
        except Exception as error:
            log.exception("a message of the view of %s", self._session.id)
            return f"This could not be done: {type(error).__name__}: {error}. The session is unharmed."
        return ""

    def _set_approval(self, approval: str) -> None:
        if self._predictions is None:
            self._session.set_approval(approval)
            self._approval = None
            return
        self._session.set_approval(teaching_stops(approval))
        self._approval = approval


def _client(ident: str) -> str:
    """Which page sent it: ids are a page's name and a count."""
    return ident.rpartition("-")[0]


def _noted(note: str) -> Message:
    return {"note": note} if note else {}
