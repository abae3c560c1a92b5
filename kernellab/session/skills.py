"""Notes that a session or a search proposes: advice, change and measured effect, with links to both candidates.

A note needs a measured effect: the later candidate must be certainly faster, that is, its speedup interval is above
the earlier one's, both measured by the Verifier against the same baseline.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from kernellab.lowering.headers import without_headers
from kernellab.memory.records import Provenance, Skill
from kernellab.records import Comparison, Source
from kernellab.session.record.records import Turn
from kernellab.session.record.state import State

_MOST_CHANGE = 1200
_MOST_ADVICE = 300


def proposals(state: State, family: str) -> Iterator[Skill]:
    """Yield a note for each verified candidate that is certainly faster than the verified one before it on its line."""
    if state.target is None:
        return
    for turn in state.turns.values():
        pair = _pair(state, turn)
        if pair is None:
            continue
        turn_before, turn_after = pair
        old, new = _eager(turn_before), _eager(turn_after)
        if old is None or new is None or new.low <= old.high:
            continue
        later, earlier = _made(state, turn_after), _made(state, turn_before)
        if later is None or earlier is None or later.candidate is None or earlier.candidate is None:
            continue
        yield Skill(
            advice=advice(_said(state, turn_after)), change=change(earlier.candidate.source, later.candidate.source),
            ratio=new.speedup / old.speedup, low=new.low / old.high, high=new.high / old.low,
            operator_class=family, dsl=state.target.dsl, chip=state.target.chip,
            before=f"{state.id}/{earlier.id}", after=f"{state.id}/{later.id}",
            provenance=Provenance(origin="session", place=state.id, turn=later.id, author=later.author.value),
        )  # fmt: skip


def advice(text: str) -> str:
    """The first sentences of a role's rationale for its change."""
    first = text.strip().split("\n\n")[0].replace("\n", " ")
    return first[:_MOST_ADVICE].strip() or "Compare the two candidates: no reason was given why the second is faster."


def change(before: Source, after: Source, most: int = _MOST_CHANGE) -> str:
    """The diff from one source to the other, without kernellab's headers; at most ``most`` characters."""
    old, new = without_headers(before).files, without_headers(after).files
    lines: list[str] = []
    for name in sorted({*old, *new}):
        lines += difflib.unified_diff(
            old.get(name, "").splitlines(), new.get(name, "").splitlines(), name, name, lineterm="", n=1
        )
    return "\n".join(lines)[:most]


def _pair(state: State, turn: Turn) -> tuple[Turn, Turn] | None:
    """The last passed verification above ``turn``, and ``turn``; None unless both passed."""
    if turn.verdict is None or not turn.verdict.passed or turn.reused is not None:
        return None
    passed_turns = (t for t in state.up(turn.parent) if t.verdict is not None and t.verdict.passed)
    passed_before = next(passed_turns, None)
    return None if passed_before is None else (passed_before, turn)


def _eager(turn: Turn) -> Comparison | None:
    return turn.verdict.against("eager") if turn.verdict is not None else None


def _made(state: State, turn: Turn) -> Turn | None:
    return next((t for t in state.up(turn.parent) if t.candidate is not None), None)


def _said(state: State, turn: Turn) -> str:
    """The rationale of the role that made the change: the Coder, otherwise the Designer, back to the last verdict."""
    for ancestor in state.up(turn.parent):
        if ancestor.verdict is not None:
            break
        if ancestor.rationale and ancestor.author.value != "rules":
            return ancestor.rationale
    code_turn = _made(state, turn)
    return code_turn.rationale if code_turn else ""


__all__ = ["advice", "change", "proposals"]
