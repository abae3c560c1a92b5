"""A session as one HTML file: the workbench itself on what was recorded, for readers without a kernel."""

from __future__ import annotations

import json
from itertools import permutations
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader

from kernellab.errors import SessionError
from kernellab.notebook.saved.snapshot import snapshot
from kernellab.notebook.views import texts as long
from kernellab.notebook.views.candidates import comparison, page, rows_of
from kernellab.notebook.views.detail import detail, exchange_text
from kernellab.notebook.views.facts import Facts
from kernellab.notebook.views.head import head
from kernellab.notebook.views.roofline import roofline
from kernellab.notebook.views.rows import turn_rows
from kernellab.notebook.widget import script, style
from kernellab.session.record.state import State

#: candidates that a reader may compare in pairs; of more, the fastest
_COMPARED = 12
#: bytes of the record; of more, only the turns of the head's line can be looked at
_MOST = 3_000_000


def shared_page(state: State, facts: Facts) -> str:
    """The page. Prompts and replies of models are in it, keys never are: they are in no journal.

    Raises:
        SessionError: the front end is not built.
    """
    bundle = script("workbench")
    if not isinstance(bundle, Path):
        raise SessionError("The workbench's front end is not built here.", "Run make widgets.")
    data = _recorded(state, facts)
    text = json.dumps(data)
    if len(text) > _MOST:
        line = {turn.id for turn in state.path()}
        text = json.dumps({**data, "turns": {turn: parts for turn, parts in data["turns"].items() if turn in line}})
    template = Environment(loader=PackageLoader("kernellab.notebook", "saved")).get_template("shared.html.j2")
    css = style("workbench")
    look = css.read_text("utf-8") if isinstance(css, Path) else ""
    return template.render(
        name=state.created.name, data=_in_json(text), style=look,
        script=_in_script(bundle.read_text("utf-8")), fallback=snapshot(state),
    )  # fmt: skip


def _recorded(state: State, facts: Facts) -> dict[str, Any]:
    """Traits, what each turn shows, and the answers to what the front end asks."""
    shown = {
        turn: {"detail": detail(state, turn, {}), "texts": long.texts(state, turn)} for turn in state.turns
    }  # fmt: skip
    rows = rows_of(state)
    fastest = [row["turn"] for row in page(rows, 0, _COMPARED, "speedup")["rows"]]
    verdicts = {turn.parent: turn.id for turn in state.turns.values() if turn.verdict is not None}
    judged = [verdicts.get(turn, turn) for turn in fastest]
    answers: dict[str, Any] = {
        "check": {"diagnostics": [], "cost": [], "pins": []},
        **{f"candidates {sort}": page(rows, 0, len(rows), sort) for sort in ("number", "speedup")},
        **{f"exchange {exchange.id}": exchange_text(exchange) for exchange in state.exchanges()},
        **{f"compare {a} {b}": comparison(state, a, b) for a, b in permutations(judged, 2)},
    }
    now = head(state, "", facts)
    traits = {
        "head": {**now, "can": dict.fromkeys(now["can"], False), "call": ""},
        "turns": turn_rows(state), "changed": [], "detail": detail(state, "", {}), "roofline": roofline(state, facts),
        "texts": long.texts(state, ""), "partial": dict(long.NO_PARTIAL), "shown": "", "beat": 0,
    }  # fmt: skip
    return {"traits": traits, "turns": shown, "answers": answers}


def _in_json(text: str) -> str:
    """JSON for a script element: nothing in it ends the element. A < stands in strings alone."""
    return text.replace("<", "\\u003c")


def _in_script(text: str) -> str:
    """JavaScript for a script element, likewise; JSON knows no such escape of a !."""
    return text.replace("</", "<\\/").replace("<!--", "<\\!--")
