"""The last view as static HTML that needs no front end: for exported notebooks, GitHub, and a kernel that is gone."""

from __future__ import annotations

from html import escape

from kernellab.notebook.protocol import TurnRow
from kernellab.notebook.saved.coloured import coloured
from kernellab.notebook.views.at_turn import source_at, verdict_at
from kernellab.notebook.views.head import status_words
from kernellab.notebook.views.roofline import history, reference_name
from kernellab.notebook.views.rows import turn_rows
from kernellab.notebook.views.verdict import MAP_WORDS, facts, headline, seconds, stage_rows
from kernellab.records import Evidence, Verdict
from kernellab.session.edits import main_file
from kernellab.session.record.records import SessionStatus
from kernellab.session.record.state import State
from kernellab.session.record.view import target_words

CELL = 'style="text-align:left;vertical-align:top;padding:1px 12px 1px 0"'
_WHOLE = 'style="text-align:left;vertical-align:top;padding:1px 12px 1px 0;white-space:nowrap"'
#: a line is scrolled to, never broken: the comments of a kernel stand in a column
PRE = (
    'style="white-space:pre;overflow:auto;font-family:monospace;padding:6px 8px;border:1px solid rgba(128,128,128,.35)"'
)
#: rows of a long session that are shown: the first and the last of them
_MOST_ROWS = 60


def snapshot(state: State) -> str:
    """Header, speedups as a picture, turns, sketch, code and verdict; it has no script and no style sheet."""
    best = state.best()
    status = [status_words(state), headline(best.verdict) if best else ""]
    line = "; ".join(filter(None, [*status, state.reason if state.status is not SessionStatus.RUNNING else ""]))
    title = f"<b>{escape(state.created.name)}</b> {escape(target_words(state))}: {escape(line)}"
    parts = [f"<p>{title}</p>", speedups_svg(state), turns_html(state)]
    at = best.turn.id if best else state.head
    designed = state.sketch_turn(at) if at else None
    if designed is not None and designed.sketch:
        parts.append(_folded(f"Sketch of turn {designed.number}", _code(designed.sketch, "the.sketch")))
    source = best.candidate.source if best else source_at(state, state.head) if state.head else None
    if source is not None:
        name = main_file(source)
        parts.append(_folded(f"Code: {name}", _code(source.files[name], name)))
    verdict = best.verdict if best else verdict_at(state, state.head) if state.head else None
    if verdict is not None:
        parts.append(_folded(_verdict_of(best.turn.number if best else None), verdict_html(verdict), is_open=True))
    last = verdict_at(state, state.head) if state.head else None
    if last is not None and last is not verdict:
        number = next((t.number for t in reversed(state.path()) if t.verdict is last), None)
        parts.append(_folded(_verdict_of(number), verdict_html(last), is_open=True))
    return f'<div class="kernellab-receipt">{"".join(filter(None, parts))}</div>'


def _verdict_of(number: int | None) -> str:
    return f"Verdict of turn {number}" if number else "Verdict"


def receipt(state: State) -> str:
    """The snapshot, folded to one line: what a notebook keeps of a session besides its live view."""
    best = state.best()
    parts = [status_words(state), headline(best.verdict) if best else ""]
    line = f"{state.created.name}: {'; '.join(filter(None, parts))}"
    return f"<details><summary>{escape(line)}</summary>{snapshot(state)}</details>"


def turns_html(state: State) -> str:
    rows = turn_rows(state)
    shown = rows if len(rows) <= _MOST_ROWS else [*rows[: _MOST_ROWS // 2], None, *rows[-_MOST_ROWS // 2 :]]
    head = "".join(f"<th {CELL}>{key}</th>" for key in ("turn", "role", "by", "state", "time", "what came of it"))
    body = "".join(_row(row) if row else f"<tr><td {CELL} colspan=6>...</td></tr>" for row in shown)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>" if rows else "<p>no turns yet</p>"


def _row(row: TurnRow) -> str:
    number = f"{'&nbsp;' * 2 * row['depth']}{row['number']}"
    cells = [row["role"], row["author"], row["state"], seconds(row["seconds"]), row["note"]]
    # all but the words at the end keep to a line
    rest = "".join(f"<td {_WHOLE}>{escape(str(cell))}</td>" for cell in cells[:-1])
    rest += f"<td {CELL}>{escape(str(cells[-1]))}</td>"
    return f"<tr><td {CELL}>{number}</td>{rest}</tr>"


def verdict_html(verdict: Verdict) -> str:
    """Outcome, stages and numbers in a table, then where the errors are."""
    stages = ", ".join(f"{s['name']} {s['state']}" for s in stage_rows(verdict.stages))
    rows = [("stages", stages), *facts(verdict)]
    table = "".join(f"<tr><th {CELL}>{escape(key)}</th><td {CELL}>{escape(value)}</td></tr>" for key, value in rows)
    evidence = verdict.evidence or Evidence()
    errors = "\n".join(f"{c.place}: {c.message}" for c in evidence.compiler)
    places = f"<p>{MAP_WORDS}</p>{_pre(chr(10).join(evidence.error_map))}" if evidence.error_map else ""
    extra = places + (_pre(errors) if errors else "")
    # it holds the kernel and its headers: in colour it is five times as long
    again = _folded("A cell that reproduces it", _pre(evidence.reproduction)) if evidence.reproduction else ""
    head = f"<b>{verdict.outcome}</b>: {escape(verdict.reason)}"
    return f"<div>{head}<table><tbody>{table}</tbody></table>{extra}{again}</div>"


def speedups_svg(state: State, width: int = 420, height: int = 124) -> str:
    """Speedups against eager by turn with their intervals, and the line at 1; "" when none was measured."""
    points = history(state)
    if not points:
        return ""
    left, right, top, bottom = 34, 26, 22, 18
    eager = escape(reference_name(state))
    # an interval of a disturbed run may reach far: the picture is of the values
    high = 1.15 * max(1.0, *(p["speedup"] for p in points))
    span = max(len(points) - 1, 1)

    def x(i: int) -> float:
        return left + (width - left - right) * (i / span if len(points) > 1 else 0.5)

    def y(value: float) -> float:
        return float(top + (height - top - bottom) * (1 - min(max(value, 0.0), high) / high))

    marks = [
        f'<line x1="{x(i):.1f}" x2="{x(i):.1f}" y1="{y(p["low"]):.1f}" y2="{y(p["high"]):.1f}" stroke="currentColor" '
        f'opacity=".4"/><circle cx="{x(i):.1f}" cy="{y(p["speedup"]):.1f}" r="3.5" fill="#0072b2">'
        f"<title>turn {p['number']}: {p['speedup']:.2f}x {eager} ({p['low']:.2f} to {p['high']:.2f})</title></circle>"
        for i, p in enumerate(points)
    ]
    path = " ".join(f"{x(i):.1f},{y(p['speedup']):.1f}" for i, p in enumerate(points))
    labels = [
        f'<text x="{left - 4}" y="{y(value) + 4:.1f}" text-anchor="end">{value:.3g}x</text>'
        for value in (1.0, max(p["speedup"] for p in points))
    ]
    ends = {0: points[0]["number"], len(points) - 1: points[-1]["number"]}
    numbers = [
        f'<text x="{x(i):.1f}" y="{height - 4}" text-anchor="middle">turn {number}</text>' for i, number in ends.items()
    ]
    return (
        f'<svg viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" font-size="10" '
        f'fill="currentColor"><title>Speedup against {eager} by turn</title>'
        f'<text x="2" y="10">times as fast as {eager}, with 95 % intervals</text>'
        f'<line x1="{left}" x2="{width - right}" y1="{y(1.0):.1f}" y2="{y(1.0):.1f}" stroke="currentColor" '
        f'stroke-dasharray="3 3" opacity=".6"/>'
        f'<polyline points="{path}" fill="none" stroke="#0072b2" stroke-width="1.5"/>'
        f"{''.join(marks)}{''.join(labels)}{''.join(numbers)}</svg>"
    )


def _folded(title: str, body: str, is_open: bool = False) -> str:
    return f"<details{' open' if is_open else ''}><summary>{escape(title)}</summary>{body}</details>"


def _pre(text: str) -> str:
    return f"<pre {PRE}>{escape(text.rstrip())}</pre>"


def _code(text: str, file: str) -> str:
    return f"<pre {PRE}>{coloured(text.rstrip(), file)}</pre>"
