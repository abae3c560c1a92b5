"""Notes that a session or a search proposes: advice, change and measured effect, with links to both candidates.

A note needs a measured effect: the later candidate must be certainly faster, that is, its speedup interval is above
the earlier one's, both measured by the Verifier against the same baseline.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from kernellab.lowering.headers import without_headers
from kernellab.memory.records import Provenance, Skill
from kernellab.records import Source
from kernellab.session.record.records import Turn
from kernellab.session.record.standings import Ratio
from kernellab.session.record.state import State

#: Most characters of a note's change and of its advice, which prompts repeat; chosen, not measured.
_MOST_CHANGE = 1200
_MOST_ADVICE = 300


def proposals(state: State, family: str) -> Iterator[Skill]:
    """Yield a note for each verified candidate that is certainly faster than the verified one before it on its line."""
    if state.target is None:
        return
    for after in state.turns.values():
        before = _passed_before(state, after)
        if before is None:
            continue
        old, new = _speedup(before), _speedup(after)
        earlier, later = state.source_turn(before.parent), state.source_turn(after.parent)
        if old is None or new is None or new.low <= old.high:
            continue
        if later is None or earlier is None or later.candidate is None or earlier.candidate is None:
            continue
        gain = new.over(old)
        yield Skill(
            advice=advice(_rationale(state, after)),
            change=change(earlier.candidate.source, later.candidate.source),
            ratio=gain.speedup, low=gain.low, high=gain.high,
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


def _passed_before(state: State, turn: Turn) -> Turn | None:
    """The last passed verification above ``turn``, which passed too; None without one."""
    if turn.verdict is None or not turn.verdict.passed or turn.reused is not None:
        return None
    return next((t for t in state.up(turn.parent) if t.verdict is not None and t.verdict.passed), None)


def _speedup(turn: Turn) -> Ratio | None:
    """The speedup of the kernel that the turn verified over eager."""
    eager = turn.verdict.against("eager") if turn.verdict is not None else None
    return Ratio.of(eager) if eager is not None else None


def _rationale(state: State, turn: Turn) -> str:
    """The rationale of the role that made the change: the Coder, otherwise the Designer, back to the last verdict."""
    for ancestor in state.up(turn.parent):
        if ancestor.verdict is not None:
            break
        if ancestor.rationale and ancestor.author.value != "rules":
            return ancestor.rationale
    code_turn = state.source_turn(turn.parent)
    return code_turn.rationale if code_turn else ""


__all__ = ["advice", "change", "proposals"]
