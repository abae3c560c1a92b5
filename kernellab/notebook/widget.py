"""The live view of a session: one anywidget whose traits hold all that is drawn.

Which thread runs a callback, and whether it runs while a cell is busy, depends on the ipykernel version. So callbacks
only queue what was clicked, and never raise.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anywidget
import traitlets

from kernellab.errors import KernellabError
from kernellab.notebook.publisher import Publisher
from kernellab.notebook.receipt import summary
from kernellab.notebook.view import view_state, view_texts

if TYPE_CHECKING:
    from kernellab.session import Session

_STATIC = Path(__file__).parent / "static"
_WIDGETS: weakref.WeakKeyDictionary[Session, SessionWidget] = weakref.WeakKeyDictionary()


class SessionWidget(anywidget.AnyWidget):
    """``state`` and ``texts`` are those of the view module; ``shown`` is the turn looked at, "" for the head."""

    _esm = _STATIC / "session.js"
    _css = _STATIC / "session.css"

    name = traitlets.Unicode().tag(sync=True)
    state = traitlets.Dict().tag(sync=True)
    texts = traitlets.Dict().tag(sync=True)
    shown = traitlets.Unicode().tag(sync=True)
    #: the number of the last click that was taken
    ack = traitlets.Unicode().tag(sync=True)
    beat = traitlets.Int().tag(sync=True)
    error = traitlets.Unicode().tag(sync=True)

    def __init__(self, session: Session) -> None:
        super().__init__(name=session.name, state=view_state(session.state), texts=view_texts(session.state))
        self._session = session
        self._actions = ThreadPoolExecutor(max_workers=1, thread_name_prefix="kernellab-clicks")
        self._publisher = Publisher(self._publish, beat=self._tick, failed=self._fail)
        self._unsubscribe = session.subscribe(lambda *_: self._publisher.poke())
        self.observe(lambda _: self._publisher.poke(), names=["shown"])
        self.on_msg(self._on_message)
        self._publisher.poke()

    def close(self) -> None:
        self._unsubscribe()
        self._publisher.close()
        self._actions.shutdown(wait=False)
        super().close()

    def __repr__(self) -> str:
        return summary(self._session.state)

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """The view, and for readers without a front end the same in text and in HTML."""
        bundle = super()._repr_mimebundle_(**kwargs)
        if bundle is None:
            return None
        data, metadata = bundle
        text = repr(self)
        return {**data, "text/plain": text, "text/html": f"<p>{escape(text)}</p>"}, metadata

    def _publish(self) -> None:
        state = self._session.state
        with self.hold_sync():
            self.state = view_state(state, self.shown, self._session.stages)
            self.texts = view_texts(state, self.shown)
            self._tick()

    def _tick(self) -> None:
        self.beat += 1

    def _fail(self, error: Exception) -> None:
        self.error = f"{type(error).__name__}: {error}"

    def _on_message(self, _widget: Any, content: Mapping[str, Any], _buffers: Any) -> None:
        self._actions.submit(self._take, dict(content))

    def _take(self, content: Mapping[str, Any]) -> None:
        """Carry out one click, on a thread of its own: the session may need a moment to take it."""
        self.ack = str(content.get("id", ""))
        self.error = ""
        try:
            _act(self._session, content)
        except KernellabError as error:
            self.error = str(error)
        except Exception as error:  # nobody waits for this thread: what went wrong becomes what the view says
            self._fail(error)
        self._publisher.poke()


def widget_of(session: Session) -> SessionWidget:
    """The session's one widget; displaying it twice gives two views of the same."""
    if session not in _WIDGETS:
        _WIDGETS[session] = SessionWidget(session)
    return _WIDGETS[session]


def _act(session: Session, content: Mapping[str, Any]) -> None:
    """One click, in the session's words.

    Raises:
        KernellabError: the session's state does not allow it.
    """
    action = content.get("action")
    if action == "approve":
        session.approve(to=content.get("to"), suggestion=content.get("suggestion"))
    elif action == "sketch":
        session.edit_sketch(content["text"])
    elif action == "source":
        session.edit_source({content["file"]: content["text"]})
    elif action == "fork":
        session.fork(turn=content["turn"])
    elif action == "approval":
        session.set_approval(content["value"])
    elif action == "role":
        session.set_role(content["role"], content["value"])
    elif action in ("step", "run", "pause", "stop"):
        getattr(session, action)()
    else:
        raise KernellabError(f"The view asked for {action!r}, which a session does not know.", "Reload the page.")
