"""Messages of a front end, carried out on separate threads.

Which thread runs a widget's callback, and whether it runs while a cell is busy, depends on the ipykernel version. So a
callback only queues what was asked, and never raises; decisions, the editor's questions and long questions each have
their threads.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from kernellab.errors import KernellabError
from kernellab.notebook.board.body import Body

log = logging.getLogger("kernellab.notebook")

#: questions of an editor: they share one thread, and a newer check makes an older one pointless
QUICK = frozenset(("check", "complete", "hover"))
#: ids of decisions that are remembered, so that one which arrives twice is carried out once
_REMEMBERED = 512

Message = dict[str, Any]


class Messages:
    """``act`` carries out a decision and gives a note for the person, ``ask`` answers a question; decisions run one
    after the other. ``on_decision`` gets what went wrong with each, "" where nothing did.

    ``subject`` is what the view shows, a session or a run. ``quick`` names the editor's questions, which run on one
    thread in their order; a "check" that a newer one of the same page overtakes is answered by the error "superseded".
    """

    def __init__(
        self,
        send: Callable[[Message], object],
        act: Callable[[Body], str],
        ask: Callable[[Body], Any],
        on_decision: Callable[[str], object],
        *,
        subject: str,
        quick: Collection[str] = (),
    ) -> None:
        self._send, self._act, self._ask, self._on_decision = send, act, ask, on_decision
        self._subject, self._quick = subject, quick
        self._replies: OrderedDict[str, Message] = OrderedDict()
        self._checks: dict[str, str] = {}
        self._lock = threading.Lock()
        self._decisions = ThreadPoolExecutor(1, "kernellab-decisions")
        self._editor = ThreadPoolExecutor(1, "kernellab-editor")
        self._questions = ThreadPoolExecutor(2, "kernellab-questions")

    def take(self, _widget: Any, content: Any, _buffers: Any) -> None:
        """A custom message of the front end. Any thread."""
        message = content if isinstance(content, Mapping) else {}
        body, ident = message.get("body"), str(message.get("id", ""))
        try:
            if not isinstance(body, Mapping):
                self._refuse(ident)
            elif "action" in body:
                self._decisions.submit(self._decide, ident, dict(body))
            elif "ask" in body:
                self._queue(ident, dict(body))
            elif "ping" in body:
                self._send({"kind": "answer", "id": ident, "value": True})
            else:
                self._refuse(ident)
        except RuntimeError:  # closed while the message was on its way
            log.info("a message for a closed view")

    def submit(self, work: Callable[..., object], *arguments: Any) -> None:
        """Do something of the view's own on the threads of long questions."""
        self._questions.submit(work, *arguments)

    def submit_quick(self, work: Callable[..., object], *arguments: Any) -> None:
        """Do something of the view's own on the editor's thread."""
        self._editor.submit(work, *arguments)

    def close(self) -> None:
        for threads in (self._decisions, self._editor, self._questions):
            threads.shutdown(wait=False, cancel_futures=True)

    def _refuse(self, ident: str) -> None:
        error = "The view sent something that is not a message. Reload the page."
        self._send({"kind": "done", "id": ident, "error": error})

    def _queue(self, ident: str, body: Message) -> None:
        if body.get("ask") == "check":
            with self._lock:
                self._checks[_page(ident)] = ident
        (self._editor if body.get("ask") in self._quick else self._questions).submit(self._answer, ident, body)

    def _decide(self, ident: str, body: Message) -> None:
        reply = self._replies.get(ident) if ident else None
        if reply is None:
            note, error = tried(lambda: self._act(body), self._subject)
            reply = {"kind": "done", "id": ident}
            reply.update({name: text for name, text in (("error", error), ("note", note)) if text})
            self._on_decision(error)
            self._replies[ident] = reply
            while len(self._replies) > _REMEMBERED:
                self._replies.popitem(last=False)
        self._send(reply)

    def _answer(self, ident: str, body: Message) -> None:
        reply: Message = {"kind": "answer", "id": ident}
        with self._lock:
            newest = self._checks.get(_page(ident), ident)
        if self._quick and body.get("ask") == "check" and newest != ident:
            self._send({**reply, "error": "superseded"})
            return
        value, error = tried(lambda: self._ask(body), self._subject)
        self._send({**reply, **({"error": error} if error else {"value": value})})


def tried(work: Callable[[], Any], subject: str) -> tuple[Any, str]:
    """The result of ``work``, and what went wrong as a sentence for the view: no caller waits for these threads."""
    try:
        return work(), ""
    except KernellabError as error:
        return None, error.told if error.details else str(error)
    except Exception as error:
        log.exception("a message of a view")
        return None, f"This could not be done: {type(error).__name__}: {error}. The {subject} is unharmed."


def _page(ident: str) -> str:
    """Which page sent a message: ids are a page's name and a count."""
    return ident.rpartition("-")[0]
