"""T4: the same verification again by a separate judge, with other seeds; do the figures agree?"""

from __future__ import annotations

from kernellab.conditions import Condition, Mark, NotReproduced, Ratio, joined
from kernellab.records import Comparison, Stage, StageResult, StageState, Trust, Verdict


def reproduced(first: Verdict, again: Verdict, seconds: float) -> Verdict:
    """``first`` at T4 where ``again`` passed too and the intervals of every ratio that both have overlap.

    A kernel that fails the second time is refused for what it failed then. One whose figures differ passes, with the
    level that it had, the label "not reproduced" and both intervals. ``seconds`` is what the second took.
    """
    if not again.passed:
        reason = f"Passed once and failed when measured again in a new process: {again.reason}"
        return _with(again.model_copy(update={"reason": reason}), NotReproduced(outcome="failed"))
    pairs = [(one, other) for one in first.comparisons if (other := again.against(one.baseline)) is not None]
    if not pairs:
        return _with(first, NotReproduced(outcome="no time"))
    apart = [(one, other) for one, other in pairs if not (one.low <= other.high and other.low <= one.high)]
    words = "; ".join(f"{_ratio(other).text} {other.baseline}" for _, other in pairs)
    part = StageResult(
        name=Stage.FAST, state=StageState.PASSED, seconds=seconds, note=f"again in a new process: {words}"
    )
    found = first.model_copy(update={"stages": [*first.stages, part]})
    if not apart:
        found = found.model_copy(update={"trust": Trust.T4})
        return _with(found, Mark(kind="sealed")) if first.trust is Trust.T3 else found
    return _with(
        found,
        *(
            NotReproduced(outcome="differs", baseline=one.baseline, first=_ratio(one), second=_ratio(other))
            for one, other in apart
        ),
    )


def _with(verdict: Verdict, *conditions: Condition) -> Verdict:
    return verdict.model_copy(update={"conditions": joined(verdict.conditions, conditions)})


def _ratio(comparison: Comparison) -> Ratio:
    return Ratio(speedup=comparison.speedup, low=comparison.low, high=comparison.high)
