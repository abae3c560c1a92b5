"""What the front end asks: one function a question; the protocol's ``Ask``. Answers are plain data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kernellab.errors import SessionError
from kernellab.notebook.answers import (
    Artefact,
    Brief,
    CandidatePage,
    Download,
    ExchangeText,
    Expected,
    Explained,
    Heat,
    MemoryPage,
    SizePoint,
)
from kernellab.notebook.board.body import Body, named, number, words
from kernellab.notebook.language.check import checked
from kernellab.notebook.language.complete import complete
from kernellab.notebook.language.hover import hover
from kernellab.notebook.views.access_map import touches
from kernellab.notebook.views.artefacts import artefact
from kernellab.notebook.views.at_turn import looked_at, source_at, verdict_at
from kernellab.notebook.views.candidates import as_csv, comparison, page, rows_of
from kernellab.notebook.views.detail import exchange_text
from kernellab.notebook.views.explain import explained
from kernellab.notebook.views.facts import Facts
from kernellab.notebook.views.speed import heat, size_point
from kernellab.records import Role
from kernellab.session import Session

_EXPECTS: Mapping[Role, Expected] = {Role.DESIGNER: "sketch", Role.CODER: "code", Role.CONDUCTOR: "route"}


@dataclass(frozen=True)
class Window:
    """What a question is about: the session, the turn looked at, and what is known besides the journal."""

    session: Session
    shown: str
    facts: Facts


def answer(window: Window, body: Body) -> Any:
    """The answer's value.

    Raises:
        KernellabError: it is not understood, or there is no answer; the sentence says why.
    """
    return named(_ASKS, body, "ask", "request")(window, body)


def _exchange(window: Window, body: Body) -> ExchangeText:
    wanted = words(body, "exchange")
    for exchange in window.session.state.exchanges():
        if exchange.id == wanted:
            return exchange_text(exchange)
    raise SessionError(f"There is no exchange {wanted}.", "Reload the page.")


def _brief(window: Window, body: Body) -> Brief:
    question = window.session.state.question
    role = question.role if question is not None else None
    text = window.session.brief(role)
    return {"role": role.value if role else "", "text": text, "expects": _EXPECTS.get(role or Role.DESIGNER, "sketch")}


def _artefact(window: Window, body: Body) -> Artefact:
    state = window.session.state
    source = source_at(state, looked_at(state, window.shown))
    if source is None:
        raise SessionError("There is no code at this turn.", "Look at a turn after the Coder's.")
    return artefact(source, words(body, "name"), window.facts)


def _candidates(window: Window, body: Body) -> CandidatePage:
    sort = body.get("sort")
    return page(
        rows_of(window.session.state), number(body, "offset"), number(body, "limit"),
        sort if isinstance(sort, str) else "number",
    )  # fmt: skip


def _explain(window: Window, body: Body) -> Explained:
    what = words(body, "what")
    return explained(window.session.trace.explain(what, looked_at(window.session.state, window.shown)), what)


def _heat(window: Window, body: Body) -> Heat:
    state = window.session.state
    at = looked_at(state, window.shown)
    return heat(source_at(state, at), verdict_at(state, at))


def _size(window: Window, body: Body) -> SizePoint:
    size = number(body, "size")
    return size_point(window.session.timings.over(words(body, "dim"), sizes=[size]), size)


def _export(window: Window, body: Body) -> Download:
    name = window.session.name
    if words(body, "what") == "candidates":
        return {"name": f"{name}.csv", "text": as_csv(rows_of(window.session.state))}
    if window.session.state.best() is None:
        raise SessionError("No kernel has passed yet.", "Export when one has.")
    return {"name": f"{name}.py", "text": window.session.exported()}


def _memory(window: Window, body: Body) -> MemoryPage:
    from kernellab.notebook.board.memory_panel import page

    return page(window.session, body)


_ASKS: Mapping[str, Callable[[Window, Body], Any]] = {
    "check": lambda window, body: checked(words(body, "text"), window.facts),
    "complete": lambda window, body: complete(words(body, "text"), number(body, "line"), number(body, "col")),
    "hover": lambda window, body: hover(words(body, "text"), number(body, "line"), number(body, "col"), window.facts),
    "exchange": _exchange,
    "brief": _brief,
    "artefact": _artefact,
    "candidates": _candidates,
    "compare": lambda window, body: comparison(window.session.state, words(body, "a"), words(body, "b")),
    "explain": _explain,
    "touches": lambda window, body: touches(words(body, "text"), window.facts),
    "heat": _heat,
    "sizes": lambda window, body: window.session.timings.sizes(words(body, "dim")),
    "size": _size,
    "memory": _memory,
    "export": _export,
}
