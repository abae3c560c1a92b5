"""A kernel that is right and slower than the framework: whether to try more, and its hot operation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernellab.agents.briefs import Brief, RouteBrief
from kernellab.agents.rules.classify import ErrorClass
from kernellab.records import RouteKind, Verdict
from kernellab.records.standing import Standing

if TYPE_CHECKING:
    from kernellab.sketch.cost import Cost, LaunchCost

#: Certainly slower by enough to try more: the whole interval of the speedup is below this.
SLOW = 0.97
#: A kernel below this time in ms is mostly its own call, which no schedule shortens.
MOSTLY_CALL_MS = 0.05


def is_slow(verdict: Verdict | None) -> bool:
    """Whether it passed, and is slower than eager by more than a call's cost: for certain, or by its median."""
    eager = verdict.against("eager") if verdict is not None and verdict.passed else None
    if verdict is None or eager is None or verdict.time is None or verdict.time.median_ms <= MOSTLY_CALL_MS:
        return False
    return eager.high < SLOW or eager.standing is Standing.DOUBTFUL


def was_sent_back(brief: Brief) -> bool:
    """Whether an earlier attempt asked the Designer for a faster design."""
    routes = (attempt.route for attempt in brief.history)
    return any(r is not None and r.to is RouteKind.DESIGNER and r.error_class == ErrorClass.PERFORMANCE for r in routes)


def may_measure(brief: RouteBrief) -> bool:
    """Whether it is slow and the rules Designer has not measured its designs and tunables yet."""
    return is_slow(brief.verdict) and brief.measures and brief.turns_left > 0 and not was_sent_back(brief)


def hot_launch(cost: Cost) -> LaunchCost | None:
    """The launch with most of the roofline time; None for a sketch of one launch, or if a launch's time is unknown."""
    if len(cost.launches) < 2 or any(launch.cost.time_ms is None for launch in cost.launches):
        return None
    return max(cost.launches, key=lambda launch: launch.cost.time_ms or 0.0)


def share_of(launch: LaunchCost, cost: Cost) -> float:
    """The launch's share of the sketch's roofline time (0 to 1)."""
    return (launch.cost.time_ms or 0.0) / cost.time_ms if cost.time_ms else 0.0


def hot_operation(cost: Cost, code_costs_more: bool = False) -> str:
    """Name what takes most of the launch with most of the roofline time in the cost model, in one sentence; "" if
    nothing does. See :func:`_hottest_part` for ``code_costs_more``."""
    launch = hot_launch(cost)
    if launch is None:
        part, place = _hottest_part(cost, code_costs_more), ""
    else:
        place = f"{share_of(launch, cost):.0%} of the roofline time,"
        if launch.library:
            call = f"the library call of line {launch.line}, {place} by the cost model"
            return f"The hot operation is {call}; no tile or loop of the sketch is in it."
        part, place = _hottest_part(launch.cost, code_costs_more), f" of launch {launch.kernel}, {place}"
    return f"The hot operation is {part}{place} by the cost model." if part else ""


def _hottest_part(cost: Cost, code_costs_more: bool) -> str:
    """The operation with most of the arithmetic if that bounds ``cost``, else the tensor with most of the traffic.

    ``code_costs_more``: the kernel takes far longer than the model allows, so traffic does not explain its time.
    """
    most_traffic = max(cost.tensors, key=lambda t: t.slow, default=None)
    if cost.operations and (cost.bound == "compute" or code_costs_more or most_traffic is None):
        operation = cost.operations[0]
        return f"{operation.operation} (line {operation.line}), {operation.share:.0%} of the arithmetic"
    if most_traffic is None or not cost.bytes_slow:
        return ""
    share = most_traffic.slow / cost.bytes_slow
    return f"the traffic of {most_traffic.tensor} (line {most_traffic.line}), {share:.0%} of the bytes"
