"""Every candidate of a session in a list, and any two of them side by side."""

from __future__ import annotations

import difflib
from typing import Any

from kernellab.notebook.at import verdict_at
from kernellab.notebook.library import own_files
from kernellab.notebook.verdict import facts, figure, outcome_word, speedup_title
from kernellab.records import Verdict
from kernellab.session.records import Turn
from kernellab.session.state import State
from kernellab.session.view import verdict_line

PAGE_LIMIT = 500


def rows_of(state: State) -> list[dict[str, Any]]:
    """A ``CandidateRow`` of the protocol for each turn that gave a source, by number."""
    verdicts = {turn.parent: turn.verdict for turn in state.turns.values() if turn.verdict is not None}
    path = {turn.id for turn in state.path()}
    turns = sorted((t for t in state.turns.values() if t.candidate is not None), key=lambda t: t.number)
    return [_row(turn, verdicts.get(turn.id), turn.id in path) for turn in turns]


def _row(turn: Turn, verdict: Verdict | None, on_path: bool) -> dict[str, Any]:
    eager = verdict.against("eager") if verdict else None
    time = verdict.time if verdict else None
    spread = f"median of {time.samples} calls, quartiles {time.q1_ms:.3g} to {time.q3_ms:.3g} ms" if time else ""
    return {
        "turn": turn.id,
        "number": turn.number,
        "author": turn.author.value,
        "passed": verdict.passed if verdict else None,
        "on_path": on_path,
        "trust": verdict.trust.value if verdict else "",
        "time": figure(f"{time.median_ms:.3g} ms", spread) if time else None,
        "speedup": figure(f"{eager.speedup:.2f}x", speedup_title(eager, verdict)) if eager and verdict else None,
        "value": eager.speedup if eager else None,
        "note": verdict_line(verdict) if verdict else "not verified",
    }


def page(rows: list[dict[str, Any]], offset: int, limit: int, sort: str = "number") -> dict[str, Any]:
    """A ``CandidatePage``: ``limit`` rows (500 at most) from ``offset``, by number or the fastest first."""
    ordered = sorted(rows, key=lambda row: -(row["value"] or 0.0)) if sort == "speedup" else rows
    offset = max(0, min(offset, len(ordered)))
    return {"total": len(rows), "offset": offset, "rows": ordered[offset : offset + max(0, min(limit, PAGE_LIMIT))]}


def comparison(state: State, a: str, b: str) -> dict[str, Any]:
    """A ``CandidateComparison`` of what two turns' lines end with. Raises SessionError for a turn that is not there."""
    first, second = state.turn(a), state.turn(b)
    verdicts = verdict_at(state, first.id), verdict_at(state, second.id)
    known = [dict(facts(verdict)) | {"verdict": outcome_word(verdict)} if verdict else {} for verdict in verdicts]
    names = list(dict.fromkeys([*known[0], *known[1]]))
    return {
        "a": first.id,
        "b": second.id,
        "verdict": _sentence(first, second, *verdicts),
        "rows": [
            {"name": name, "a": known[0].get(name, ""), "b": known[1].get(name, ""), "title": ""} for name in names
        ],
        "diff": difference(state, first, second),
    }


def _sentence(first: Turn, second: Turn, a: Verdict | None, b: Verdict | None) -> str:
    one, other = f"turn {first.number}", f"turn {second.number}"
    if a is None or b is None:
        missing = one if a is None else other
        return f"{missing.capitalize()} has no verdict, so there is nothing to compare but the texts."
    if not (a.passed and b.passed):
        failed = " and ".join(name for name, v in ((one, a), (other, b)) if not v.passed)
        return f"{failed.capitalize()} did not pass: only the texts can be compared."
    left, right = a.against("eager"), b.against("eager")
    if left is None or right is None:
        return "They were not both timed against eager."
    # each ratio is paired with eager in its own run, so that a change of load between the runs cancels
    ratio = right.speedup / left.speedup
    low, high = right.low / left.high, right.high / left.low
    if low <= 1.0 <= high:
        return (
            f"No difference can be told between {one} and {other}: {ratio:.2f} times (95 %: {low:.2f} to {high:.2f})."
        )
    if ratio >= 1.0:
        fast, slow = other, one
    else:
        fast, slow, ratio, low, high = one, other, 1 / ratio, 1 / high, 1 / low
    return f"{fast.capitalize()} is {ratio:.2f} times as fast as {slow} (95 %: {low:.2f} to {high:.2f})."


def difference(state: State, first: Turn, second: Turn) -> str:
    """A unified diff of the sketches and of the files that differ."""
    one, other = _texts(state, first), _texts(state, second)
    parts = []
    for name in dict.fromkeys([*one, *other]):
        before, after = one.get(name, ""), other.get(name, "")
        if before != after:
            lines = difflib.unified_diff(
                before.splitlines(), after.splitlines(),
                f"turn {first.number}/{name}", f"turn {second.number}/{name}", lineterm="",
            )  # fmt: skip
            parts.append("\n".join(lines))
    return "\n".join(parts)


def _texts(state: State, turn: Turn) -> dict[str, str]:
    designed, candidate = state.sketch_turn(turn.id), state.candidate(turn.id)
    sketch = {"sketch": designed.sketch} if designed and designed.sketch else {}
    return sketch | (own_files(candidate.source) if candidate else {})


def as_text(found: dict[str, Any], a: str, b: str) -> str:
    """A comparison in columns under the two turns' numbers, then the difference of their texts."""
    head = {"name": "", "a": f"turn {a.lstrip('t')}", "b": f"turn {b.lstrip('t')}"}
    rows = [head, *found["rows"]] if found["rows"] else []
    names, wide = (max((len(row[column]) for row in rows), default=0) for column in ("name", "a"))
    lines = [f"{row['name']:<{names}}  {row['a']:<{wide}}  {row['b']}".rstrip() for row in rows]
    return "\n".join([found["verdict"], "", *lines, "", found["diff"]]).rstrip()
