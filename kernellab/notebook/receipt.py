"""A session, or a part of it, as something to end a cell with: text, and HTML that needs no front end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from kernellab.errors import counted
from kernellab.notebook.at import source_at, verdict_at
from kernellab.notebook.head import STATUS_WORDS
from kernellab.notebook.snapshot import turns_html, verdict_html
from kernellab.notebook.verdict import headline, verdict_text
from kernellab.session.edits import main_file
from kernellab.session.records import SessionStatus
from kernellab.session.view import target_words, turn_line

if TYPE_CHECKING:
    from kernellab.session.state import State


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
    return plain((turn.sketch or "").rstrip() if turn else f"{state.created.name} has no sketch yet.")


def code(state: State) -> Shown:
    source = source_at(state, state.head)
    if source is None:
        return plain(f"{state.created.name} has no code yet.")
    name = main_file(source)
    beside = ", ".join(other for other in source.files if other != name)
    mark = "#" if name.endswith(".py") else "//"
    return plain(f"{mark} {name}{f' (beside it: {beside})' if beside else ''}\n{source.files[name].rstrip()}")


def verdict(state: State) -> Shown:
    found = verdict_at(state, state.head)
    if found is None:
        return plain(f"{state.created.name} has no verdict yet.")
    return Shown(verdict_text(found), verdict_html(found))


def turns(state: State) -> Shown:
    return Shown(turns_text(state), turns_html(state))


def task(state: State) -> Shown:
    return plain(state.created.text.strip("\n"))


def reproduction(state: State) -> Shown:
    """The cell that reproduces the head's failure."""
    return plain(reproduction_of(state) or f"{state.created.name} has no failure to reproduce.")


def reproduction_of(state: State) -> str:
    found = verdict_at(state, state.head)
    return found.evidence.reproduction if found and found.evidence else ""


#: what %kernel_show shows as text, by name
VIEWS: dict[str, Callable[[State], Shown]] = {
    "sketch": sketch,
    "code": code,
    "verdict": verdict,
    "turns": turns,
    "task": task,
    "reproduction": reproduction,
}


def summary(state: State) -> str:
    """One line; the same on every machine while the session runs, so that saved notebooks compare."""
    name = state.created.name
    if state.status is SessionStatus.RUNNING:
        return f"{name}: a session; `%kernel_show {name} turns` lists what it does, `await {name}` waits for it"
    best = state.best()
    found = [STATUS_WORDS[state.status], counted(len(state.turns), "turn"), headline(best.verdict) if best else ""]
    if state.status in (SessionStatus.FAILED, SessionStatus.STOPPED):
        found.append(state.reason)
    if state.status is SessionStatus.WAITING and state.question:
        found.append(f"{state.question.text} {state.question.answer}")
    return f"{name} ({target_words(state)}): {'; '.join(filter(None, found))}"


def turns_text(state: State) -> str:
    return "\n".join(turn_line(turn) for turn in state.turns.values()) or "no turns yet"


def plain(text: str) -> Shown:
    # a line is scrolled to, never broken: the comments of a kernel stand in a column
    return Shown(text, f'<pre style="white-space:pre;overflow:auto">{escape(text)}</pre>')
