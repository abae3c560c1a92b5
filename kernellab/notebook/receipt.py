"""A session, or a part of it, as text and as HTML that needs no front end: for terminals, exports and old notebooks."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from kernellab.notebook.verdict import headline, verdict_state, verdict_text
from kernellab.notebook.view import STATUS_WORDS, source_at, turn_rows, verdict_at
from kernellab.session.edits import main_file
from kernellab.session.records import SessionStatus
from kernellab.session.view import target_words, turn_line

if TYPE_CHECKING:
    from kernellab.records import Verdict
    from kernellab.session import Session
    from kernellab.session.state import State

_CELL = 'style="text-align:left;padding:2px 10px 2px 0"'


@dataclass(frozen=True)
class Shown:
    """Something to end a cell with: ``text`` where there is only text, else ``html``."""

    text: str
    html: str

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return self.html


def show(session: Session, view: str) -> Shown:
    """``view`` is sketch, code, verdict or turns."""
    state = session.state
    name = state.created.name
    if view == "sketch":
        turn = state.sketch_turn()
        return _text((turn.sketch or "").rstrip() if turn else f"{name} has no sketch yet.")
    if view == "code":
        source = source_at(state, state.head)
        if source is None:
            return _text(f"{name} has no code yet.")
        name = main_file(source)
        beside = ", ".join(other for other in source.files if other != name)
        mark = "#" if name.endswith(".py") else "//"
        return _text(f"{mark} {name}{f' (beside it: {beside})' if beside else ''}\n{source.files[name].rstrip()}")
    if view == "verdict":
        verdict = verdict_at(state, state.head)
        if verdict is None:
            return _text(f"{name} has no verdict yet.")
        return Shown(verdict_text(verdict), verdict_html(verdict))
    return Shown(turns_text(state), turns_html(state))


def summary(state: State) -> str:
    """One line; the same on every machine while the session runs, so that saved notebooks compare."""
    name = state.created.name
    if state.status is SessionStatus.RUNNING:
        return f"{name}: a session; `%kernel_show {name} turns` lists what it does, `await {name}` waits for it"
    best = state.best()
    found = [STATUS_WORDS[state.status], f"{len(state.turns)} turns", headline(best.verdict) if best else ""]
    if state.status in (SessionStatus.FAILED, SessionStatus.STOPPED):
        found.append(state.reason)
    if state.status is SessionStatus.WAITING and state.question:
        found.append(f"{state.question.text} {state.question.answer}")
    return f"{name} ({target_words(state)}): {'; '.join(filter(None, found))}"


def turns_text(state: State) -> str:
    return "\n".join(turn_line(turn) for turn in state.turns.values()) or "no turns yet"


def turns_html(state: State) -> str:
    keys = ("number", "role", "author", "state", "seconds", "note")
    head = "".join(f"<th {_CELL}>{key}</th>" for key in keys)
    rows = "".join(
        "<tr>" + "".join(f"<td {_CELL}>{escape(str(row[key]))}</td>" for key in keys) + "</tr>"
        for row in turn_rows(state)
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def verdict_html(verdict: Verdict) -> str:
    state: dict[str, Any] = verdict_state(verdict)
    word = "passed" if verdict.passed else f"failed at {verdict.stage.value}"
    stages = ", ".join(f"{s['name']} {s['state']}" for s in state["stages"])
    rows = [("stages", stages), *((f"against {r['baseline']}", r["text"]) for r in state["speedups"])]
    rows += list(state["facts"].items())
    table = "".join(f"<tr><th {_CELL}>{escape(key)}</th><td {_CELL}>{escape(value)}</td></tr>" for key, value in rows)
    extra = "".join(
        f"<pre>{escape(chr(10).join(lines))}</pre>" for lines in (state["error_map"], state["compiler"]) if lines
    )
    return f"<div><b>{word}</b>: {escape(verdict.reason)}<table><tbody>{table}</tbody></table>{extra}</div>"


def _text(text: str) -> Shown:
    return Shown(text, f"<pre>{escape(text)}</pre>")
