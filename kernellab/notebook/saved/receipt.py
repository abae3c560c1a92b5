"""A session, or a part of it, as something to end a cell with: text, and HTML that needs no front end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from kernellab.errors import counted
from kernellab.notebook.saved.coloured import coloured
from kernellab.notebook.saved.snapshot import CELL, PRE, snapshot, turns_html, verdict_html
from kernellab.notebook.views.at_turn import source_at, verdict_at
from kernellab.notebook.views.head import status_words
from kernellab.notebook.views.verdict import headline, verdict_text
from kernellab.session.edits import main_file
from kernellab.session.record.records import SessionStatus
from kernellab.session.record.render import Turns
from kernellab.session.record.view import target_words, verdict_line

if TYPE_CHECKING:
    from kernellab.records import Source, Verdict
    from kernellab.session import BestKernel, Session
    from kernellab.session.record.render import Candidates
    from kernellab.session.record.state import State


@dataclass(frozen=True)
class Shown:
    """Something to end a cell with: ``text`` where there is only text, else ``html``."""

    text: str
    html: str

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return self.html


def sketch(state: State) -> Shown:
    turn = state.sketch_turn()
    return sketch_shown(turn.sketch or "") if turn else plain(f"{state.created.name} has no sketch yet.")


def sketch_shown(text: str) -> Shown:
    return in_colour(text.rstrip(), "the.sketch")


def code(state: State) -> Shown:
    source = source_at(state, state.head)
    if source is None:
        return plain(f"{state.created.name} has no code yet.")
    return source_shown(source)


def source_shown(source: Source) -> Shown:
    """Its main file, and the names of its other files."""
    name = main_file(source)
    others = ", ".join(other for other in source.files if other != name)
    mark = "#" if name.endswith(".py") else "//"
    return in_colour(f"{mark} {name}{f' (beside it: {others})' if others else ''}\n{source.files[name].rstrip()}", name)


def verdict(state: State) -> Shown:
    last = verdict_at(state, state.head)
    if last is None:
        return plain(f"{state.created.name} has no verdict yet.")
    return verdict_shown(last)


def verdict_shown(verdict: Verdict) -> Shown:
    return Shown(verdict_text(verdict), verdict_html(verdict))


def candidates_shown(candidates: Candidates) -> Shown:
    """Number, author, verdict and speedup of each, the best marked."""
    rows = "".join(
        f"<tr><td {CELL}>{c.number}{' <b>best</b>' if c.best else ''}</td><td {CELL}>{c.candidate.author.value}</td>"
        f"<td {CELL}>{escape(verdict_line(c.verdict) if c.verdict else 'not verified')}</td></tr>"
        for c in candidates
    )
    head = "".join(f"<th {CELL}>{key}</th>" for key in ("candidate", "by", "verdict"))
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    return Shown(repr(candidates), table if rows else "<p>no candidates yet</p>")


def best_shown(best: BestKernel) -> Shown:
    """What it is and how fast, how to call it, and its code."""
    paragraph = f"<p><code>{escape(best.name)}.best(...)</code>: {escape(repr(best)[1:-1])}</p>"
    return Shown(repr(best), paragraph + source_shown(best.source).html)


def session_shown(session: Session) -> Shown:
    return Shown(repr(session), snapshot(session.state))


def turns_shown(turns: Turns) -> Shown:
    return Shown(repr(turns), turns_html(turns.state))


def task(state: State) -> Shown:
    return in_colour(state.created.text.strip("\n"), "task.py")


def reproduction(state: State) -> Shown:
    """The cell that reproduces the head's failure."""
    script = reproduction_of(state)
    return in_colour(script, "cell.py") if script else plain(f"{state.created.name} has no failure to reproduce.")


def reproduction_of(state: State) -> str:
    last = verdict_at(state, state.head)
    return last.evidence.reproduction if last and last.evidence else ""


#: what %kernel_show shows as text, by name
VIEWS: dict[str, Callable[[State], Shown]] = {
    "sketch": sketch,
    "code": code,
    "verdict": verdict,
    "turns": lambda state: turns_shown(Turns.of(state)),
    "task": task,
    "reproduction": reproduction,
}


def summary(state: State) -> str:
    """One line; the same on every machine while the session runs, so that saved notebooks compare."""
    name = state.created.name
    if state.status is SessionStatus.RUNNING:
        return f"{name}: a session; %kernel_show {name} turns lists what it does, await {name} waits for it"
    best = state.best()
    parts = [status_words(state), counted(len(state.turns), "turn"), headline(best.verdict) if best else ""]
    if state.status in (SessionStatus.FAILED, SessionStatus.STOPPED):
        parts.append(state.reason)
    if state.status is SessionStatus.WAITING and state.question:
        parts.append(f"{state.question.text} {state.question.answer}")
    return f"{name} ({target_words(state)}): {'; '.join(filter(None, parts))}"


def plain(text: str) -> Shown:
    # a line is scrolled to, never broken: the comments of a kernel stand in a column
    return Shown(text, f"<pre {PRE}>{escape(text)}</pre>")


def in_colour(text: str, file: str) -> Shown:
    """Code, coloured by what ``file`` is called."""
    return Shown(text, f"<pre {PRE}>{coloured(text, file)}</pre>")
