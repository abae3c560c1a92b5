"""A kernel that is right and certainly slower than the framework: is there more to try, and which operation is hot?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernellab.agents.briefs import Brief, RouteBrief
from kernellab.agents.rules.classify import ErrorClass
from kernellab.records import RouteKind, Verdict

if TYPE_CHECKING:
    from kernellab.sketch.cost import Cost, LaunchCost

#: certainly slower: the whole interval of the speedup lies below
SLOW = 0.97
#: what a session ends with there
KEEP_EAGER = "Eager is faster here: keep eager."
#: a kernel of fewer ms is mostly its own call, which no schedule shortens
MOSTLY_CALL_MS = 0.05


def is_slow(verdict: Verdict | None) -> bool:
    """Did it pass, and is it certainly slower than eager, by more than what a call costs?"""
    eager = verdict.against("eager") if verdict is not None and verdict.passed else None
    if verdict is None or eager is None or verdict.time is None:
        return False
    return eager.high < SLOW and verdict.time.median_ms > MOSTLY_CALL_MS


def was_sent_back(brief: Brief) -> bool:
    """Was the Designer asked for a faster design in one of the rounds before?"""
    routes = (attempt.route for attempt in brief.history)
    return any(r is not None and r.to is RouteKind.DESIGNER and r.error_class == ErrorClass.PERFORMANCE for r in routes)


def may_measure(brief: RouteBrief) -> bool:
    """Is it slow while the rules Designer has not measured its designs and tunables against each other?"""
    return is_slow(brief.verdict) and brief.measures and brief.turns_left > 0 and not was_sent_back(brief)


def hot_launch(cost: Cost) -> LaunchCost | None:
    """The launch with most of the roofline time; None for a sketch of one launch, and where a launch's time is not
    known."""
    if len(cost.launches) < 2 or any(launch.cost.time_ms is None for launch in cost.launches):
        return None
    return max(cost.launches, key=lambda launch: launch.cost.time_ms or 0.0)


def share_of(launch: LaunchCost, cost: Cost) -> float:
    """The launch's share of the sketch's roofline time (0 to 1)."""
    return (launch.cost.time_ms or 0.0) / cost.time_ms if cost.time_ms else 0.0


def hot_operation(cost: Cost, code_costs_more: bool = False) -> str:
    """One sentence: the operation with most of the arithmetic, or the tensor with most of the traffic, by what bounds
    the launch that takes most of the roofline time in the cost model.

    ``code_costs_more``: the kernel takes far longer than the model allows, so that traffic does not explain its time.
    """
    launch = hot_launch(cost)
    inside = cost if launch is None else launch.cost
    place = "" if launch is None else f" of launch {launch.kernel}, {share_of(launch, cost):.0%} of the roofline time,"
    if launch is not None and launch.library:
        called = f"the library call of line {launch.line}, {share_of(launch, cost):.0%} of the roofline time,"
        return f"The hot operation is {called} by the cost model; no tile or loop of the sketch is in it."
    most = max(inside.tensors, key=lambda t: t.slow, default=None)
    if inside.operations and (inside.bound == "compute" or code_costs_more or most is None):
        hot = inside.operations[0]
        what = f"{hot.operation} (line {hot.line}), {hot.share:.0%} of the arithmetic"
        return f"The hot operation is {what}{place} by the cost model."
    if most is None or not inside.bytes_slow:
        return ""
    share = most.slow / inside.bytes_slow
    what = f"the traffic of {most.tensor} (line {most.line}), {share:.0%} of the bytes"
    return f"The hot operation is {what}{place} by the cost model."


__all__ = [
    "KEEP_EAGER",
    "MOSTLY_CALL_MS",
    "SLOW",
    "hot_launch",
    "hot_operation",
    "is_slow",
    "may_measure",
    "share_of",
    "was_sent_back",
]
