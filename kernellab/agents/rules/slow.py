"""A kernel that is right and certainly slower than the framework: is there more to try, and which operation is hot?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernellab.agents.briefs import Brief, RouteBrief
from kernellab.agents.rules.classify import ErrorClass
from kernellab.records import RouteKind, Verdict

if TYPE_CHECKING:
    from kernellab.sketch.cost import Cost

#: certainly slower: the whole interval of the speedup lies below
SLOW = 0.97
#: a kernel of fewer ms is mostly its own call, which no schedule shortens
_CALL_MS = 0.05


def is_slow(verdict: Verdict | None) -> bool:
    """Did it pass, and is it certainly slower than eager, by more than what a call costs?"""
    eager = verdict.against("eager") if verdict is not None and verdict.passed else None
    if verdict is None or eager is None or verdict.time is None:
        return False
    return eager.high < SLOW and verdict.time.median_ms > _CALL_MS


def was_sent_back(brief: Brief) -> bool:
    """Was the Designer asked for a faster design in one of the rounds before?"""
    routes = (attempt.route for attempt in brief.history)
    return any(r is not None and r.to is RouteKind.DESIGNER and r.error_class == ErrorClass.PERFORMANCE for r in routes)


def may_measure(brief: RouteBrief) -> bool:
    """Is it slow while the rules Designer has not measured its designs and tunables against each other?"""
    return is_slow(brief.verdict) and brief.measures and brief.turns_left > 0 and not was_sent_back(brief)


def hot_operation(cost: Cost, code_costs_more: bool = False) -> str:
    """One sentence: the operation with most of the arithmetic, or the tensor with most of the traffic, by what bounds
    the sketch in the cost model.

    ``code_costs_more``: the kernel takes far longer than the model allows, so that traffic does not explain its time.
    """
    most = max(cost.tensors, key=lambda t: t.slow, default=None)
    if cost.operations and (cost.bound == "compute" or code_costs_more or most is None):
        hot = cost.operations[0]
        what = f"{hot.operation} (line {hot.line}), {hot.share:.0%} of the arithmetic"
        return f"The hot operation is {what} by the cost model."
    if most is None or not cost.bytes_slow:
        return ""
    share = most.slow / cost.bytes_slow
    what = f"the traffic of {most.tensor} (line {most.line}), {share:.0%} of the bytes"
    return f"The hot operation is {what} by the cost model."


__all__ = ["SLOW", "hot_operation", "is_slow", "may_measure", "was_sent_back"]
