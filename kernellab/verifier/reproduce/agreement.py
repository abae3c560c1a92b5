"""T4: the same verification again by a judge of its own, with other seeds; do the figures agree?"""

from __future__ import annotations

from kernellab.records import Comparison, Stage, StageResult, StageState, Trust, Verdict

LABEL = "not reproduced"


def reproduced(first: Verdict, again: Verdict, seconds: float) -> Verdict:
    """``first`` at T4 where ``again`` passed too and the intervals of every ratio that both have overlap.

    A kernel that fails the second time is refused for what it failed then. One whose figures differ passes, with the
    level that it had, the label "not reproduced" and both intervals. ``seconds`` is what the second took.
    """
    if not again.passed:
        reason = f"Passed once and failed when measured again in a new process: {again.reason}"
        return again.model_copy(update={"reason": reason, "label": _joined(again.label, LABEL)})
    pairs = [(one, other) for one in first.comparisons if (other := again.against(one.baseline)) is not None]
    if not pairs:
        return first.model_copy(update={"label": _joined(first.label, f"{LABEL}: not timed")})
    apart = [(one, other) for one, other in pairs if not (one.low <= other.high and other.low <= one.high)]
    words = "; ".join(f"{_interval(other)} {other.baseline}" for _, other in pairs)
    part = StageResult(
        name=Stage.FAST, state=StageState.PASSED, seconds=seconds, note=f"again in a new process: {words}"
    )
    found = first.model_copy(update={"stages": [*first.stages, part]})
    if not apart:
        label = _joined(first.label, "sealed" if first.trust is Trust.T3 else "")
        return found.model_copy(update={"trust": Trust.T4, "label": label})
    flags = [f"{LABEL}: {_interval(one)} {one.baseline}, then {_interval(other)}" for one, other in apart]
    return found.model_copy(update={"label": _joined(first.label, LABEL), "flags": [*first.flags, *flags]})


def _interval(comparison: Comparison) -> str:
    return f"{comparison.speedup:.2f}x [{comparison.low:.2f}, {comparison.high:.2f}]"


def _joined(*labels: str) -> str:
    return ", ".join(filter(None, labels))
