"""Notes that a session or a search proposes: advice, change and measured effect, with links to both candidates.

A note without a measured effect is never proposed: the later candidate must be faster for certain, its interval of
speedups wholly above the earlier one's, both measured by the Verifier against the same baseline.
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
    """One note for each verified candidate that is faster for certain than the verified one before it on its line."""
    if state.target is None:
        return
    for turn in state.turns.values():
        pair = _pair(state, turn)
        if pair is None:
            continue
        before, after = pair
        old, new = _eager(before), _eager(after)
        if old is None or new is None or new.low <= old.high:
            continue
        made, was = _made(state, after), _made(state, before)
        if made is None or was is None or made.candidate is None or was.candidate is None:
            continue
        yield Skill(
            advice=advice(_said(state, after)), change=change(was.candidate.source, made.candidate.source),
            ratio=new.speedup / old.speedup, low=new.low / old.high, high=new.high / old.low,
            operator_class=family, dsl=state.target.dsl, chip=state.target.chip,
            before=f"{state.id}/{was.id}", after=f"{state.id}/{made.id}",
            provenance=Provenance(origin="session", place=state.id, turn=made.id, author=made.author.value),
        )  # fmt: skip


def advice(text: str) -> str:
    """The first sentences of what a role said of its change."""
    first = text.strip().split("\n\n")[0].replace("\n", " ")
    return first[:_MOST_ADVICE].strip() or "Compare the two candidates: no reason was given why the second is faster."


def change(before: Source, after: Source, most: int = _MOST_CHANGE) -> str:
    """What turned one source into the other, without our headers; at most ``most`` characters."""
    old, new = without_headers(before).files, without_headers(after).files
    lines: list[str] = []
    for name in sorted({*old, *new}):
        lines += difflib.unified_diff(
            old.get(name, "").splitlines(), new.get(name, "").splitlines(), name, name, lineterm="", n=1
        )
    return "\n".join(lines)[:most]


def _pair(state: State, turn: Turn) -> tuple[Turn, Turn] | None:
    """The last verification above ``turn`` that passed, and ``turn``, where it is one that passed too."""
    if turn.verdict is None or not turn.verdict.passed or turn.reused is not None:
        return None
    above = (t for t in state.up(turn.parent) if t.verdict is not None and t.verdict.passed)
    before = next(above, None)
    return None if before is None else (before, turn)


def _eager(turn: Turn) -> Comparison | None:
    return turn.verdict.against("eager") if turn.verdict is not None else None


def _made(state: State, turn: Turn) -> Turn | None:
    return next((t for t in state.up(turn.parent) if t.candidate is not None), None)


def _said(state: State, turn: Turn) -> str:
    """What the role that made the change said of it: the Coder, else the Designer, back to the last verdict."""
    for above in state.up(turn.parent):
        if above.verdict is not None:
            break
        if above.rationale and above.author.value != "rules":
            return above.rationale
    made = _made(state, turn)
    return made.rationale if made else ""


__all__ = ["advice", "change", "proposals"]
