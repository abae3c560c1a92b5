"""An agent's claims, checked against the record: the sketch's cost, the verdict that followed, and the best."""

from __future__ import annotations

from kernellab.errors import KernellabError
from kernellab.records import Verdict
from kernellab.session.record.records import ClaimCheck, Turn
from kernellab.session.record.state import State
from kernellab.session.turn.briefing import headroom
from kernellab.session.turn.context import Bench


def checked(bench: Bench, state: State, turn: Turn) -> tuple[ClaimCheck, ...]:
    """Check each claim of ``turn`` against the record's numbers. ``holds`` is None without numbers or measurements."""
    from kernellab.agents.model import check_claims

    if not turn.claims:
        return ()
    facts = _facts(bench, state, turn)
    verdict = verdict_after(state, turn)
    checks = []
    for text, holds, reason in check_claims(turn.claims, facts):
        if holds is False and verdict is None and turn.verdict is None:
            # a later measurement may confirm it
            holds, reason = None, "Nothing was measured yet that could tell."
        checks.append(ClaimCheck(text=text, holds=holds, why=reason))
    return tuple(checks)


def verdict_after(state: State, turn: Turn) -> Verdict | None:
    """The first verdict below ``turn``."""
    ids = {turn.id}
    for later in state.turns.values():
        if later.parent in ids:
            ids.add(later.id)
            if later.verdict is not None:
                return later.verdict
    return None


def _facts(bench: Bench, state: State, turn: Turn) -> dict[str, object]:
    facts: dict[str, object] = {}
    own_verdict, best = verdict_after(state, turn), state.best()
    if own_verdict is not None:
        facts |= _figures("this kernel", own_verdict)
    if best is not None:
        facts |= _figures("the best kernel", best.verdict)
    sketch = turn.sketch or (designed.sketch if (designed := state.sketch_turn(turn.id)) else None)
    if sketch:
        facts |= _cost(bench, sketch, dict(turn.constexpr))
    return facts


def _figures(name: str, verdict: Verdict) -> dict[str, object]:
    facts: dict[str, object] = {}
    if verdict.time is not None:
        facts[f"{name} time_ms"] = verdict.time.median_ms
    for comparison in verdict.comparisons:
        facts[f"{name} against {comparison.baseline} speedup"] = comparison.speedup
        facts[f"{name} {comparison.baseline} baseline_ms"] = comparison.baseline_time.median_ms
    if verdict.sol_ms is not None:
        facts[f"{name} bound_ms"] = verdict.sol_ms
    share = headroom(verdict)
    if share is not None:
        facts[f"{name} of the bound share"] = share
    return facts


def _cost(bench: Bench, sketch: str, constexpr: dict[str, int | float]) -> dict[str, object]:
    """The sketch's cost at the task's default sizes; empty if it cannot be computed."""
    from kernellab.agents.rules.sketch_cost import cost_at

    try:
        cost = cost_at(sketch, bench.task(), bench.target(), constexpr)
    except KernellabError:
        return {}
    return {
        "sketch moves bytes": cost.bytes_slow,
        "sketch distinct bytes": cost.bytes_unique,
        "sketch footprint bytes": cost.footprint,
        "sketch flops": sum(cost.flops.values()),
    }
