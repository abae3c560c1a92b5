"""Messages of a front end, carried out on threads of their own.

Which thread runs a widget's callback depends on the ipykernel version: it only queues what was asked, and never raises.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from kernellab.errors import KernellabError
from kernellab.notebook.board.body import Body

log = logging.getLogger("kernellab.notebook")

#: ids of decisions that are remembered, so that one which arrives twice is carried out once
_REMEMBERED = 512

Message = dict[str, Any]


class Messages:
    """``act`` carries out a decision and gives a note for the person, ``ask`` answers a question; decisions run one
    after the other. ``told`` gets what went wrong with the last decision, "" where nothing did."""

    def __init__(
        self,
        send: Callable[[Message], object],
        act: Callable[[Body], str],
        ask: Callable[[Body], Any],
        told: Callable[[str], object],
    ) -> None:
        self._send, self._act, self._ask, self._told = send, act, ask, told
        self._done: OrderedDict[str, Message] = OrderedDict()
        self._decisions = ThreadPoolExecutor(1, "kernellab-decisions")
        self._questions = ThreadPoolExecutor(2, "kernellab-questions")

    def take(self, _widget: Any, content: Any, _buffers: Any) -> None:
        """A custom message of the front end. Any thread."""
        found = content if isinstance(content, Mapping) else {}
        body, ident = found.get("body"), str(found.get("id", ""))
        try:
            if isinstance(body, Mapping) and "action" in body:
                self._decisions.submit(self._decide, ident, dict(body))
            elif isinstance(body, Mapping) and "ask" in body:
                self._questions.submit(self._answer, ident, dict(body))
            else:
                self._send({"kind": "done", "id": ident, "error": "The view sent what is no message. Reload the page."})
        except RuntimeError:  # closed while the message was on its way
            log.info("a message for a closed view")

    def close(self) -> None:
        for threads in (self._decisions, self._questions):
            threads.shutdown(wait=False, cancel_futures=True)

    def _decide(self, ident: str, body: Message) -> None:
        reply = self._done.get(ident) if ident else None
        if reply is None:
            note, error = self._tried(lambda: self._act(body))
            reply = {
                "kind": "done",
                "id": ident,
                **({"error": error} if error else {}),
                **({"note": note} if note else {}),
            }
            self._told(error)
            self._done[ident] = reply
            while len(self._done) > _REMEMBERED:
                self._done.popitem(last=False)
        self._send(reply)

    def _answer(self, ident: str, body: Message) -> None:
        value, error = self._tried(lambda: self._ask(body))
        self._send({"kind": "answer", "id": ident, **({"error": error} if error else {"value": value})})

    def _tried(self, work: Callable[[], Any]) -> tuple[Any, str]:
        """Nobody waits for these threads: what goes wrong becomes a sentence for the view."""
        try:
            return work(), ""
        except KernellabError as error:
            return None, error.told if error.details else str(error)
        except Exception as error:
            log.exception("a message of a view")
            return None, f"This could not be done: {type(error).__name__}: {error}. The run is unharmed."
