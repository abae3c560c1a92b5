"""T4: the same verification by a separate judge, with other seeds; do the figures agree?"""

from __future__ import annotations

from kernellab.conditions import Condition, Mark, NotReproduced, Ratio, joined
from kernellab.records import Comparison, Stage, StageResult, StageState, Trust, Verdict


def reproduced(first: Verdict, again: Verdict, seconds: float) -> Verdict:
    """``first`` at T4 if ``again`` passed too and the intervals of every ratio that both have overlap.

    A kernel that fails the second time is refused for that failure. One whose figures differ passes, at its earlier
    level, with the label "not reproduced" and both intervals. ``seconds`` is the time of the second verification.
    """
    if not again.passed:
        reason = f"Passed once and failed when measured again in a new process: {again.reason}"
        return _with(again.model_copy(update={"reason": reason}), NotReproduced(outcome="failed"))
    pairs = [(ours, theirs) for ours in first.comparisons if (theirs := again.against(ours.baseline)) is not None]
    if not pairs:
        return _with(first, NotReproduced(outcome="no time"))
    disjoint = [(ours, theirs) for ours, theirs in pairs if not (ours.low <= theirs.high and theirs.low <= ours.high)]
    words = "; ".join(f"{_ratio(theirs).text} {theirs.baseline}" for _, theirs in pairs)
    part = StageResult(
        name=Stage.FAST, state=StageState.PASSED, seconds=seconds, note=f"again in a new process: {words}"
    )
    verdict = first.model_copy(update={"stages": [*first.stages, part]})
    if not disjoint:
        verdict = verdict.model_copy(update={"trust": Trust.T4})
        return _with(verdict, Mark(kind="sealed")) if first.trust is Trust.T3 else verdict
    return _with(
        verdict,
        *(
            NotReproduced(outcome="differs", baseline=ours.baseline, first=_ratio(ours), second=_ratio(theirs))
            for ours, theirs in disjoint
        ),
    )


def _with(verdict: Verdict, *conditions: Condition) -> Verdict:
    return verdict.model_copy(update={"conditions": joined(verdict.conditions, conditions)})


def _ratio(comparison: Comparison) -> Ratio:
    return Ratio(speedup=comparison.speedup, low=comparison.low, high=comparison.high)
