"""What the monitor's front end asks: one function a question; the protocol's ``Ask``. Answers are plain data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kernellab.evolve.report import page
from kernellab.notebook.answers import Download, Hover
from kernellab.notebook.board.body import Body, named, number, words
from kernellab.notebook.language.check import checked
from kernellab.notebook.language.complete import complete
from kernellab.notebook.language.hover import hover
from kernellab.notebook.monitor.detail import candidate, comparison
from kernellab.notebook.monitor.follow import Follower
from kernellab.notebook.monitor.protocol import Candidate, Comparison
from kernellab.notebook.monitor.rows import rows
from kernellab.notebook.views.facts import Facts


@dataclass(frozen=True)
class Window:
    """What a question is about: the run, and what is known of its task, which may take a second the first time."""

    follower: Follower
    facts: Callable[[], Facts]


def answer(window: Window, body: Body) -> Any:
    """The answer's value.

    Raises:
        KernellabError: it is not understood, or there is no answer; the sentence says why.
    """
    return named(ASKS, body, "ask", "request")(window, body)


def _candidate(window: Window, body: Body) -> Candidate:
    follower = window.follower
    with follower.lock:
        return candidate(follower.state, number(body, "number"))


def _compare(window: Window, body: Body) -> Comparison:
    follower = window.follower
    with follower.lock:
        return comparison(follower.state, number(body, "a"), number(body, "b"))


def _hover(window: Window, body: Body) -> Hover | None:
    return hover(words(body, "text"), number(body, "line"), number(body, "col"), window.facts())


def _report(window: Window, body: Body) -> Download:
    follower = window.follower
    with follower.lock:
        return {"name": f"{follower.run}.html", "text": page(follower.run, follower.state)}


ASKS: Mapping[str, Callable[[Window, Body], Any]] = {
    "rows": lambda window, body: rows(window.follower, number(body, "since")),
    "candidate": _candidate,
    "compare": _compare,
    "check": lambda window, body: checked(words(body, "text"), window.facts()),
    "complete": lambda window, body: complete(words(body, "text"), number(body, "line"), number(body, "col")),
    "hover": _hover,
    "report": _report,
}
