"""A session or a search as one HTML file: the workbench or the monitor on what was recorded, without a kernel."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, permutations
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from jinja2 import Environment, PackageLoader

from kernellab.content import written
from kernellab.errors import SessionError
from kernellab.notebook.answers import CandidateRow
from kernellab.notebook.language.check import checked
from kernellab.notebook.saved.snapshot import snapshot
from kernellab.notebook.views import texts as long
from kernellab.notebook.views.candidates import comparison, page, rows_of
from kernellab.notebook.views.detail import detail, exchange_text
from kernellab.notebook.views.facts import Facts
from kernellab.notebook.views.head import head
from kernellab.notebook.views.roofline import roofline
from kernellab.notebook.views.rows import turn_rows
from kernellab.notebook.widget import bundle
from kernellab.session.record.state import State

if TYPE_CHECKING:
    from kernellab.evolve import Run
    from kernellab.session import Session

#: candidates that a reader may compare in pairs; of more, the fastest
_COMPARED = 12
#: bytes of a page; what does not fit is left out, the least needed first
_MOST = 3_000_000
#: what may be done with a candidate of a page without a kernel
_NO_BUTTONS = {"protect": False, "drop": False, "open": False}


class Entry(NamedTuple):
    """Something that a reader may look at: ``key`` is a turn's id, or the question that ``value`` answers."""

    part: Literal["turns", "answers"]
    key: str
    value: Any


def share(subject: Session | Run, out: str | Path | None = None) -> tuple[Path, int]:
    """Write the page of a session or a search: the file and its bytes. Raises as the pages, and where it cannot."""
    from kernellab.notebook.views.facts import gather
    from kernellab.session import Session

    if isinstance(subject, Session):
        name, text = subject.name, shared_page(subject.state, gather(subject).measured(subject.state))
    else:
        name, text = subject.id, shared_run(subject)
    return written(Path(out or f"{name}.html"), text), len(text.encode())


def shared_page(state: State, facts: Facts) -> str:
    """The page. Prompts and replies of models are in it, keys never are: they are in no journal.

    Raises:
        SessionError: the front end is not built.
    """
    rows = rows_of(state)
    now = head(state, "", facts)
    data: dict[str, Any] = {
        "traits": {
            "head": {**now, "can": dict.fromkeys(now["can"], False), "call": ""},
            "turns": turn_rows(state), "changed": [], "detail": detail(state, "", {}),
            "roofline": {**roofline(state, facts), "dims": {}}, "texts": long.texts(state, ""),
            "partial": dict(long.NO_PARTIAL), "shown": "", "beat": 0,
        },
        "turns": {},
        "answers": {
            **{f"candidates {sort}": page(rows, 0, len(rows), sort) for sort in ("number", "speedup")},
        },
    }  # fmt: skip
    return _page(
        "workbench", f"{state.created.name}: a kernellab session", data, snapshot(state), _looks(state, rows, facts)
    )


def shared_run(run: Run) -> str:
    """The page of a search; of more candidates than it holds, the best have their texts. Raises as above."""
    from kernellab.evolve.report import part
    from kernellab.notebook.monitor.detail import candidate, comparison
    from kernellab.notebook.monitor.follow import Follower
    from kernellab.notebook.monitor.head import figures, head
    from kernellab.notebook.monitor.rows import row

    follower = Follower(run.workspace, run.id)
    follower.close()
    state, now = follower.state, head(follower, works_here=False)
    rows = [row(follower, number) for number in sorted(state.proposals)]
    best = () if now["best"] is None else (now["best"],)
    order = list(dict.fromkeys([*best, *state.ordered(state.evaluations), *sorted(state.proposals)]))

    def texts(numbers: Sequence[int]) -> Iterator[Entry]:
        for number in numbers:
            yield Entry("answers", f"candidate {number}", {**candidate(state, number), "can": _NO_BUTTONS})
            for one in state.proposals[number].parents:
                yield Entry("answers", f"compare {one} {number}", comparison(state, one, number))

    pairs: Iterator[Entry] = (
        Entry("answers", f"compare {a} {b}", comparison(state, a, b)) for a, b in permutations(order[:_COMPARED], 2)
    )
    answers: dict[str, Any] = {
        "rows 0": {"since": 0, "version": follower.version, "rows": rows},
    }  # fmt: skip
    ended = {} if state.status.ended else {"status": "paused", "status_text": "recorded while it ran"}
    traits = {
        "head": {**now, **ended, "can": dict.fromkeys(now["can"], False)}, "figures": figures(follower),
        "version": follower.version, "beat": 0,
    }  # fmt: skip
    data = {"traits": traits, "turns": {}, "answers": answers}
    title = f"{state.begun.name}: a kernellab search"
    looks = chain(texts(order[:_COMPARED]), pairs, texts(order[_COMPARED:]))
    return _page("monitor", title, data, part(run.id, state), looks)


def _page(name: str, title: str, data: dict[str, Any], fallback: str, more: Iterable[Entry]) -> str:
    """The front end ``name`` on ``data`` and as much of ``more``, in its order, as fits; ``fallback`` is HTML for a
    browser without scripts."""
    front = bundle(name)
    if front is None:
        raise SessionError("The workbench's front end is not built here.", "Run make widgets.")
    template = Environment(loader=PackageLoader("kernellab.notebook", "saved")).get_template("shared.html.j2")

    def render() -> str:
        return template.render(
            title=title, data=_in_json(json.dumps(data)), style=front["css"], script=_in_script(front["js"]),
            fallback=fallback,
        )  # fmt: skip

    bytes_left = _MOST - len(render().encode())
    for entry in more:
        bytes_left -= len(_in_json(json.dumps({entry.key: entry.value}))) + 2
        if bytes_left < 0:
            break
        data[entry.part][entry.key] = entry.value
    return render()


def _looks(state: State, rows: list[CandidateRow], facts: Facts) -> Iterator[Entry]:
    """What a reader may look at, the most wanted first: the head's line with what its sketches cost, comparisons,
    prompts, the other turns."""
    line = [turn.id for turn in reversed(state.path())]
    fastest = [row["turn"] for row in page(rows, 0, _COMPARED, "speedup")["rows"]]
    verdicts = {turn.parent: turn.id for turn in state.turns.values() if turn.verdict is not None}
    judged = [verdicts.get(turn, turn) for turn in fastest]
    for turn in line:
        yield from _turn(state, turn, facts)
    for a, b in permutations(judged, 2):
        yield Entry("answers", f"compare {a} {b}", comparison(state, a, b))
    for exchange in state.exchanges():
        yield Entry("answers", f"exchange {exchange.id}", exchange_text(exchange))
    for turn in reversed([turn for turn in state.turns if turn not in line]):
        yield from _turn(state, turn, facts)


def _turn(state: State, turn: str, facts: Facts) -> Iterator[Entry]:
    shown = long.texts(state, turn)
    yield Entry("turns", turn, {"detail": detail(state, turn, {}), "texts": shown})
    yield Entry("answers", f"check {shown['sketch']}", checked(shown["sketch"], facts))


def _in_json(text: str) -> str:
    """JSON for a script element: nothing in it ends the element. A < stands in strings alone."""
    return text.replace("<", "\\u003c")


def _in_script(text: str) -> str:
    """JavaScript for a script element, likewise; JSON knows no such escape of a !."""
    return text.replace("</", "<\\/").replace("<!--", "<\\!--")
