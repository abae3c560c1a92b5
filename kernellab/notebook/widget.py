"""What the workbench and the monitor have in common: a widget with messages, a publisher, and a text for readers
without a front end."""

from __future__ import annotations

import hashlib
import logging
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import anywidget
import traitlets

from kernellab.notebook.messages import Messages

log = logging.getLogger("kernellab.notebook")

_HERE = Path(__file__).parent
_STATIC = _HERE / "static"
_UNBUILT = """export default {
  render({ el }) { el.textContent = "kernellab's front end is not built: run `make widgets`, restart the kernel."; },
};"""


def bundle(name: str) -> dict[str, str] | None:
    """The module and the style sheet of the front end ``name``; None in a checkout whose front end was not built."""
    script, style = (_STATIC / f"{name}.{end}" for end in ("js", "css"))
    return {"js": script.read_text("utf-8"), "css": style.read_text("utf-8")} if script.exists() else None


def loader(name: str) -> str:
    """The module that the widget's state carries: it takes the front end ``name`` from a message."""
    held = bundle(name)
    if held is None:
        return _UNBUILT
    key = f"{name} {hashlib.sha256((held['js'] + held['css']).encode()).hexdigest()[:16]}"
    return (_HERE / "loader.js").read_text("utf-8").replace("__KEY__", key)


def followed() -> bool:
    """Does an open notebook follow the bundle's file, as anywidget's developers have it?"""
    return bool(os.environ.get("ANYWIDGET_HMR"))


def by_page(comm: Any) -> None:
    """Have the kernel take a page's messages on the subshell that the page names.

    ipykernel 7.4 sends them to the subshell that was at work when the widget last published. Another page's subshell
    may be that one, and it ends with its page, or with the comm by which a page asks for all widgets' states: every
    message of every page is lost from then on.
    """
    if hasattr(comm, "_reply_subshell_for"):
        comm._reply_subshell_for = lambda _data, named: named


class Widget(anywidget.AnyWidget):
    """A subclass names its bundle (``class Board(Widget, bundle="board")``), sets what :meth:`_saved` and
    :meth:`_publish` need, calls ``super().__init__`` with its traits, and :meth:`_start` when its messages can be
    answered."""

    head = traitlets.Dict().tag(sync=True)
    #: grows every few seconds while the kernel lives
    beat = traitlets.Int().tag(sync=True)
    #: what ended, as HTML: a saved notebook's readers have no kernel that would send the front end
    saved = traitlets.Unicode().tag(sync=True)
    _bundle = ""
    #: front ends that this kernel has sent without being asked; a page that has none asks
    _sent: ClassVar[set[str]] = set()

    def __init_subclass__(cls, bundle: str = "", **options: Any) -> None:
        if bundle and followed():
            cls._esm, cls._css = _STATIC / f"{bundle}.js", _STATIC / f"{bundle}.css"
        elif bundle:  # traitlets makes a separate subclass for each widget
            cls._esm = loader(bundle)
        cls._bundle = bundle or cls._bundle
        super().__init_subclass__(**options)

    def __init__(self, **traits: Any) -> None:
        self._closed = True
        self._message = ""
        super().__init__(**traits)
        # anywidget's model takes messages when its loader listens, so this one is not lost. A page that asks waits for
        # the running cell where the kernel has no subshells
        if self._bundle not in self._sent:
            self._sent.add(self._bundle)
            self._send_bundle()

    @property
    def closed(self) -> bool:
        return self._closed

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """The view, and for readers without a front end the last state as text and as HTML."""
        bundle = super()._repr_mimebundle_(**kwargs)
        if bundle is None:
            return None
        data, metadata = bundle
        text, html = self._saved()
        # by the mark JupyterLab's extension knows a view of ours whose kernel has ended (widgets/labextension)
        return {**data, "text/plain": text, "text/html": html}, {**metadata, "kernellab": True}

    def close(self) -> None:
        """The view's end; what it shows is not affected."""
        if self._closed:  # also called when the object is collected, perhaps half made
            return
        self._closed = True
        self._publisher.close()
        self._messages.close()
        self._leave()
        super().close()

    def _start(self, messages: Messages) -> None:
        """Answer messages from now on."""
        by_page(self.comm)
        self._messages = messages
        self._publisher = Publisher(self._publish, beat=self._tick, failed=self._failed)
        self.on_msg(self._take)
        self._closed = False

    def _take(self, _widget: Any, content: Any, buffers: Any) -> None:
        if isinstance(content, dict) and content.get("body") == {"ask": "bundle"}:
            self._send_bundle()
        else:
            self._messages.take(self, content, buffers)

    def _send_bundle(self) -> None:
        held = None if followed() else bundle(self._bundle)
        if held:
            self.send({"kind": "bundle", **held})

    def _on_decision(self, error: str) -> None:
        """A decision was carried out; ``error`` is what went wrong with it, "" for nothing."""
        self._message = error
        self._publisher.poke()

    def _tick(self) -> None:
        self.beat += 1

    def _failed(self, error: Exception) -> None:
        log.error("the view %r could not be drawn", self, exc_info=error)
        self.head = {**self.head, "message": f"The view failed: {type(error).__name__}: {error}"}

    # -- a subclass's ----------------------------------------------------------------------------------------------

    def _saved(self) -> tuple[str, str]:
        """The last state as text and as HTML."""
        raise NotImplementedError

    def _publish(self) -> None:
        """Set the traits to the state as it is; on the publisher's thread."""
        raise NotImplementedError

    def _leave(self) -> None:
        """Stop following what is shown; the last state is published by then."""
        raise NotImplementedError


# -- publishing --------------------------------------------------------------------------------------------------------


class Publisher:
    """Calls ``publish`` on a separate thread after :meth:`poke`, at most once every ``period`` seconds.

    ``beat`` is called every ``idle`` seconds, whether there is something to publish or not: what is published as it
    was sends nothing. A front end that hears neither knows that the kernel is gone. ``failed`` gets what ``publish``
    and ``beat`` raised; the thread lives on, also where ``failed`` raises in turn.
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
        beaten = time.monotonic()
        while True:
            new = self._due.wait(max(0.0, beaten + self._idle - time.monotonic()))
            self._due.clear()
            if new:
                self._try(self._publish)
            if time.monotonic() - beaten >= self._idle:
                beaten = time.monotonic()
                self._try(self._beat)
            if self._closed.is_set() and not self._due.is_set():
                return
            self._closed.wait(self._period)

    def _try(self, work: Callable[[], object]) -> None:
        try:
            work()
        except Exception as error:
            try:
                self._failed(error)
            except Exception:  # what cannot be sent cannot be reported to the view either
                log.exception("the view's failure could not be shown")
