"""What the front end asks: one function a question; the protocol's ``Ask``. Answers are plain data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kernellab.errors import KernellabError, SessionError
from kernellab.notebook.artefacts import artefact
from kernellab.notebook.at import looked_at, source_at
from kernellab.notebook.body import Body, number, words
from kernellab.notebook.candidates import comparison, page, rows_of
from kernellab.notebook.detail import exchange_text
from kernellab.notebook.facts import Facts
from kernellab.notebook.language.check import checked
from kernellab.notebook.language.complete import complete
from kernellab.notebook.language.hover import hover
from kernellab.records import Role
from kernellab.session import Session

#: questions of the editor: they share one thread, and a newer check makes an older one pointless
QUICK = frozenset(("check", "complete", "hover"))
_EXPECTS = {Role.DESIGNER: "sketch", Role.CODER: "code", Role.CONDUCTOR: "route"}


@dataclass(frozen=True)
class Window:
    """What a question is about: the session, the turn looked at, and what is known beside the journal."""

    session: Session
    shown: str
    facts: Facts


def answer(window: Window, body: Body) -> Any:
    """The answer's value.

    Raises:
        KernellabError: it is not understood, or there is no answer; the sentence says why.
    """
    name = body.get("ask")
    ask = _ASKS.get(name) if isinstance(name, str) else None
    if ask is None:
        raise KernellabError(f"The view asked {name!r}, which this kernel does not know.", "Reload the page.")
    return ask(window, body)


def _check(window: Window, body: Body) -> Any:
    return checked(words(body, "text"), window.facts)


def _complete(window: Window, body: Body) -> Any:
    return complete(words(body, "text"), number(body, "line"), number(body, "col"))


def _hover(window: Window, body: Body) -> Any:
    return hover(words(body, "text"), number(body, "line"), number(body, "col"), window.facts)


def _exchange(window: Window, body: Body) -> Any:
    wanted = words(body, "exchange")
    for found in window.session.state.exchanges():
        if found.id == wanted:
            return exchange_text(found)
    raise SessionError(f"There is no exchange {wanted}.", "Reload the page.")


def _brief(window: Window, body: Body) -> Any:
    question = window.session.state.question
    role = question.role if question is not None else None
    text = window.session.brief(role)
    return {"role": role.value if role else "", "text": text, "expects": _EXPECTS.get(role or Role.DESIGNER, "sketch")}


def _artefact(window: Window, body: Body) -> Any:
    state = window.session.state
    source = source_at(state, looked_at(state, window.shown))
    if source is None:
        raise SessionError("There is no code at this turn.", "Look at a turn after the Coder's.")
    return artefact(source, words(body, "name"))


def _candidates(window: Window, body: Body) -> Any:
    sort = body.get("sort")
    return page(
        rows_of(window.session.state), number(body, "offset"), number(body, "limit"),
        sort if isinstance(sort, str) else "number",
    )  # fmt: skip


def _compare(window: Window, body: Body) -> Any:
    return comparison(window.session.state, words(body, "a"), words(body, "b"))


_ASKS: Mapping[str, Callable[[Window, Body], Any]] = {
    "check": _check,
    "complete": _complete,
    "hover": _hover,
    "exchange": _exchange,
    "brief": _brief,
    "artefact": _artefact,
    "candidates": _candidates,
    "compare": _compare,
}
