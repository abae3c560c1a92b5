"""Where each candidate stands under the chip's roofs, and how the speedup grew: a ``Roofline`` of the protocol.

Williams, Waterman, Patterson: Roofline (CACM 2009). Intensity is FLOPs over bytes from the slowest level, both by the
sketch's cost model at the task's own sizes (the bytes by a GPU's counters, where they were read); the rate is those
FLOPs over the measured time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kernellab.notebook.protocol import Roofline, RooflinePoint, SpeedupAt
from kernellab.notebook.views.facts import Facts
from kernellab.notebook.views.verdict import BASELINES, baseline_name
from kernellab.records import Candidate, Verdict
from kernellab.session.record.records import Turn
from kernellab.session.record.state import State
from kernellab.sketch.cost import Cost

#: points of a picture: more cannot be told apart; chosen, not measured
MOST_POINTS = 300


class Measured(NamedTuple):
    """A Verifier's turn with a time, and what it judged."""

    turn: Turn
    candidate: Candidate
    verdict: Verdict


NOTHING: Roofline = {
    "peak_flops": 0.0, "bandwidth": 0.0, "ridge": 0.0, "source": "", "points": [], "baselines": [],
    "against": "", "history": [], "dims": {},
}  # fmt: skip


def roofline(state: State, facts: Facts) -> Roofline:
    """Without points while nothing was timed, or where the chip's rates are not known; ``history`` is there anyway."""
    facts = facts.measured(state)
    chip, measured = facts.chip, thinned(state)
    if not measured or chip is None or not chip.bandwidth or not chip.peak_flops:
        return {**NOTHING, "against": reference_name(state), "history": history(state), "dims": facts.dims}
    costs = {one.turn.id: cost_of(state, one.candidate, facts) for one in measured}
    kinds = [kind for cost in costs.values() if cost for kind, count in cost.flops.items() if count]
    peak = max((chip.peak_flops.get(kind, 0.0) for kind in kinds), default=0.0) or max(chip.peak_flops.values())
    best = state.best()
    points: list[RooflinePoint] = []
    baselines: dict[str, float] = {}
    for turn, _, verdict in measured:
        cost = costs[turn.id]
        if cost is None or verdict.time is None or not cost.bytes_slow:
            continue
        flops = sum(cost.flops.values())
        moved = counted_bytes(verdict)
        points.append(
            {
                "turn": turn.id,
                "number": turn.number,
                "intensity": flops / moved if moved else cost.intensity,
                "rate": flops / (verdict.time.median_ms * 1e-3),
                "label": f"turn {turn.number}: {verdict.time.median_ms:.3g} ms"
                + (f", {moved / 1e6:.3g} MB moved by the GPU's counters" if moved else ""),
                "best": best is not None and best.turn.id == turn.id,
            }
        )
        for comparison in verdict.comparisons:
            baselines[comparison.baseline] = flops / (comparison.baseline_time.median_ms * 1e-3)
    return {
        "peak_flops": peak,
        "bandwidth": chip.bandwidth,
        "source": facts.roofs,
        "ridge": peak / chip.bandwidth,
        "points": points,
        "baselines": [{"baseline": name, "rate": rate} for name, rate in baselines.items()],
        "against": reference_name(state),
        "history": history(state),
        "dims": facts.dims,
    }


def counted_bytes(verdict: Verdict) -> float:
    """What a GPU counted of a call's traffic with memory; 0 where a launch's was not counted."""
    moved = [count for one in verdict.counters for count in (one.read_bytes, one.written_bytes)]
    return 0.0 if None in moved else sum(count or 0.0 for count in moved)


def reference_name(state: State) -> str:
    """What runs the reference: PyTorch eager, or NumPy."""
    against_eager = (turn.verdict.against("eager") for turn in state.turns.values() if turn.verdict)
    eager = next((comparison for comparison in against_eager if comparison is not None), None)
    return baseline_name(eager) if eager is not None else BASELINES["eager"]


def history(state: State) -> list[SpeedupAt]:
    """Speedups against eager in order of turn."""
    rows: list[SpeedupAt] = []
    for turn, _, verdict in thinned(state):
        eager = verdict.against("eager")
        if eager is not None:
            rows.append(
                {
                    "turn": turn.id,
                    "number": turn.number,
                    "speedup": eager.speedup,
                    "low": eager.low,
                    "high": eager.high,
                }
            )
    return rows


def thinned(state: State) -> list[Measured]:
    """The timed verifications; of more than can be told apart in a picture the best, the newest, and some between."""
    points = list(timed(state))
    if len(points) <= MOST_POINTS:
        return points
    best, step = state.best(), len(points) / (MOST_POINTS - 1)
    shown_indices = {int(i * step) for i in range(MOST_POINTS - 1)} | {len(points) - 1}
    return [
        row for i, row in enumerate(points) if i in shown_indices or (best is not None and row.turn.id == best.turn.id)
    ]


def timed(state: State) -> Iterator[Measured]:
    """The verifications with a time that are not another's repeated, with what they judged."""
    for turn in sorted(state.turns.values(), key=lambda turn: turn.number):
        if turn.verdict is not None and turn.verdict.time is not None and turn.reused is None:
            candidate = state.candidate(turn.id)
            if candidate is not None:
                yield Measured(turn, candidate, turn.verdict)


def cost_of(state: State, candidate: Candidate, facts: Facts) -> Cost | None:
    """What the candidate's sketch costs; code without a sketch is counted as the session's first one: it computes the
    same function."""
    sketch = candidate.sketch or next((t.sketch for t in state.turns.values() if t.sketch), None)
    return facts.cost_of(sketch, candidate.constexpr if candidate.sketch else {}) if sketch else None
