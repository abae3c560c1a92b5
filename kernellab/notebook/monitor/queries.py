"""What the monitor's front end asks: one function a question; the protocol's ``Ask``. Answers are plain data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kernellab.evolve.report import page
from kernellab.notebook.board.body import Body, named, number, words
from kernellab.notebook.monitor.detail import candidate, comparison
from kernellab.notebook.monitor.follow import Follower
from kernellab.notebook.monitor.protocol import Candidate, Checked, Comparison, Rows
from kernellab.notebook.monitor.rows import rows
from kernellab.notebook.protocol import Download
from kernellab.notebook.views.detail import diagnostic_view
from kernellab.sketch.check import check


def answer(follower: Follower, body: Body) -> Any:
    """The answer's value.

    Raises:
        KernellabError: it is not understood, or there is no answer; the sentence says why.
    """
    return named(ASKS, body, "ask", "request")(follower, body)


def _rows(follower: Follower, body: Body) -> Rows:
    return rows(follower, number(body, "since"))


def _candidate(follower: Follower, body: Body) -> Candidate:
    with follower.lock:
        return candidate(follower.state, number(body, "number"))


def _compare(follower: Follower, body: Body) -> Comparison:
    with follower.lock:
        return comparison(follower.state, number(body, "a"), number(body, "b"))


def _check(follower: Follower, body: Body) -> Checked:
    text = words(body, "text")
    return {"diagnostics": [diagnostic_view(found, text) for found in check(text).diagnostics]}


def _report(follower: Follower, body: Body) -> Download:
    with follower.lock:
        return {"name": f"{follower.run}.html", "text": page(follower.run, follower.state)}


ASKS: Mapping[str, Callable[[Follower, Body], Any]] = {
    "rows": _rows,
    "candidate": _candidate,
    "compare": _compare,
    "check": _check,
    "report": _report,
}
