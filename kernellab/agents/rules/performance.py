"""A kernel that is right but slow: whether to continue, and from which kernel."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kernellab.agents.briefs import Attempt, RouteBrief, best_of, tied, times_as_fast
from kernellab.agents.rules.sketch_cost import cost_of
from kernellab.agents.rules.slow import MOSTLY_CALL_MS, hot_operation, is_slow, may_measure, was_sent_back
from kernellab.errors import duration
from kernellab.records import Author, Role, RouteKind, Verdict
from kernellab.target import Backend

#: Share of the speed-of-light bound that is good enough: measured kernels seldom reach more.
ENOUGH = 0.85
#: Share below which a session that ends reports the distance.
_FAR = 1 / 3
#: Number of kernels without this gain that ends the improving; the second counts those whose noise hides a gain.
PATIENCE, NOISY = 2, 4
GAIN = 1.03


def why_finish(brief: RouteBrief) -> str:
    """Why a kernel that passed ends the session; empty if continuing may help."""
    return must_finish(brief) or ("" if may_measure(brief) or unasked(brief) else no_gain(brief))


def must_finish(brief: RouteBrief) -> str:
    """Why a kernel that passed ends the session, regardless of its attempts' gains; empty if that needs a judgement.

    A kernel that is certainly slower than eager does not end it before the rules have measured their designs and
    tunables.
    """
    if may_measure(brief):
        return ""
    if is_slow(brief.verdict) and brief.measures and was_sent_back(brief):
        return f"Every design of the rules was measured, with its tunables. {hot_of(brief)}".strip()
    if not brief.improve:
        return f"No one asked for more. {hot_of(brief) if is_slow(brief.verdict) else ''}".strip()
    is_timed = brief.verdict is not None and brief.verdict.time is not None
    if brief.target.backend is Backend.INTERPRETER:
        return "No time is compared in Triton's interpreter."
    if brief.headroom is None and not (is_timed and brief.turns_left > 0 and unasked(brief)):
        return "How far it is from the bound is not known."
    if brief.headroom is not None and brief.headroom >= ENOUGH:
        return f"{brief.reached.capitalize()}."
    if brief.turns_left <= 0:
        return "The limit of turns is reached."
    standing, roles_left = standing_of(brief), unasked(brief)
    if (
        standing is not None
        and standing.at_roofline
        and (standing.at_bound or not roles_left)
        and (standing.sketch_at_bound or Role.DESIGNER not in brief.improvers)
    ):
        return f"The kernel is at its sketch's roofline ({duration(standing.sketch_ms)})."
    return ""


def is_far(brief: RouteBrief) -> bool:
    """Whether the best kernel takes several times as long as the machine needs, and longer than a call costs."""
    time = brief.verdict.time if brief.verdict is not None else None
    is_below = brief.headroom is not None and brief.headroom < _FAR
    return is_below and time is not None and time.median_ms > MOSTLY_CALL_MS


def unasked(brief: RouteBrief) -> list[Role]:
    """The improvers that have not been asked for something faster yet, the Designer first."""
    routes = [a.route for a in brief.history if a.route is not None and a.verdict is not None and a.verdict.passed]
    asked_roles = {route.to.value for route in routes}
    return [role for role in (Role.DESIGNER, Role.CODER) if role in brief.improvers and role.value not in asked_roles]


def untried(brief: RouteBrief) -> str:
    """What a session that ends below its target has not tried, and its cost; empty if everything was tried."""
    if brief.target.backend is Backend.INTERPRETER or (brief.headroom is not None and brief.headroom >= ENOUGH):
        return ""
    cost = f" (about {brief.request_tokens:,.0f} tokens a request)" if brief.request_tokens else ""
    options = [f"the {role.value} was not asked for something faster{cost}" for role in unasked(brief) if brief.improve]
    if brief.measures and not was_sent_back(brief):
        options.append("the rules' designs were not measured against each other (--tune 20: about a minute)")
    return f" Left untried: {'; '.join(options)}." if options else ""


@dataclass(frozen=True)
class Standing:
    """A kernel's times in ms: measured, by its sketch's roofline, and by the task's bound."""

    time_ms: float
    sketch_ms: float
    bound_ms: float

    @property
    def at_roofline(self) -> bool:
        """Whether the code is as fast as its sketch allows."""
        return self.sketch_ms >= ENOUGH * self.time_ms

    @property
    def is_beyond_sketch(self) -> bool:
        """Whether the code is faster than its sketch allows, so that the sketch's cost does not apply to it."""
        return self.time_ms < ENOUGH * self.sketch_ms

    @property
    def at_bound(self) -> bool:
        """Whether the code is as fast as the machine allows."""
        return self.bound_ms >= ENOUGH * self.time_ms

    @property
    def sketch_at_bound(self) -> bool:
        """Whether the sketch allows what the machine allows."""
        return self.bound_ms >= ENOUGH * self.sketch_ms

    @property
    def code_costs_more(self) -> bool:
        """Whether the code loses more relative to its sketch than the sketch loses relative to the bound."""
        return self.time_ms / self.sketch_ms > self.sketch_ms / self.bound_ms


def standing_of(brief: RouteBrief) -> Standing | None:
    """The times of the kernel that is judged; None without a time, a credible bound, or a sketch with a known cost."""
    verdict, cost = brief.verdict, cost_of(brief)
    if verdict is None or verdict.time is None or not verdict.sol_ms or cost is None or not cost.time_ms:
        return None
    if verdict.bound_share is None:
        return None
    return Standing(verdict.time.median_ms, max(cost.time_ms, verdict.sol_ms), verdict.sol_ms)


def no_gain(brief: RouteBrief) -> str:
    """State that the improvers' last kernels were not faster than the best before, in a sentence; empty if one was, or
    too few were tried.

    Kernels that no improver made do not count as failures: a sketch's lowering before a Coder who may work on it, and
    the rules' designs before a model's. If the interval does not exclude a gain, more kernels are needed.
    """
    timed_attempts = [
        (a, a.verdict) for a in brief.rounds if a.verdict is not None and a.verdict.passed and _speed(a.verdict)
    ]
    of_improvers = [_is_improvers(a, brief) for a, _ in timed_attempts]
    best, slower, noisy = 0.0, 0, 0
    for (_, verdict), improver in zip(timed_attempts, of_improvers, strict=True):
        speed, eager = _speed(verdict) or 0.0, verdict.against("eager")
        if speed >= GAIN * best:
            best, slower, noisy = speed, 0, 0
        elif improver or not any(of_improvers):
            unclear = eager is not None and eager.high >= GAIN * best
            slower, noisy = slower + (not unclear), noisy + unclear
    if slower < PATIENCE and slower + noisy < NOISY:
        return ""
    return f"The last {slower + noisy} kernels that were to be faster were not faster than the best before."


def _is_improvers(attempt: Attempt, brief: RouteBrief) -> bool:
    """Whether a role that may find something faster made this attempt's kernel."""
    coder = attempt.candidate.author if attempt.candidate is not None else None
    to_designer = attempt.route is not None and attempt.route.to is RouteKind.DESIGNER
    is_lowering = coder is Author.RULES and to_designer and Role.DESIGNER in brief.improvers
    author = coder if Role.CODER in brief.improvers and not is_lowering else attempt.author
    return author not in (None, Author.RULES)


def _speed(verdict: Verdict) -> float | None:
    if verdict.speedup is not None:
        return verdict.speedup
    return 1.0 / verdict.time.median_ms if verdict.time and verdict.time.median_ms > 0 else None


def is_best(brief: RouteBrief) -> bool:
    """Whether the judged kernel is the best so far, so that its verdict has the best share of the bound."""
    attempts = brief.rounds
    return bool(attempts) and best_of(attempts) is attempts[-1]


def stays_best(brief: RouteBrief) -> str:
    """State that an earlier kernel remains the best, in a sentence; empty if the judged one is, or none was timed."""
    attempts = brief.rounds
    best = best_of(attempts)
    if best is None or best is attempts[-1]:
        return ""
    return f"An earlier kernel stays the best{_by_what(best.verdict, attempts[-1].verdict)}."


def starting(brief: RouteBrief, to: RouteKind) -> tuple[RouteBrief, str]:
    """Return the brief of the kernel from which the role ``to`` starts, and a sentence if it is an earlier one."""
    attempts = brief.rounds
    best = best_of(attempts)
    if best is None or best is attempts[-1]:
        return brief, ""
    # a Coder keeps the brief's sketch; a Designer needs one to begin with
    if (to is RouteKind.CODER and best.sketch != brief.sketch) or (to is RouteKind.DESIGNER and not best.sketch):
        return brief, ""
    number = attempts.index(best) + 1
    sentence = (
        f"Round {number} is still the best{_by_what(best.verdict, attempts[-1].verdict)}, and the work starts from it. "
    )
    of_best = replace(brief, sketch=best.sketch, gate=best.gate, candidate=best.candidate, verdict=best.verdict)
    return of_best, sentence


def _by_what(best: Verdict | None, last: Verdict | None) -> str:
    """The measure by which it is the best although its time is longer; else empty."""
    if best is None or last is None or best.time is None or last.time is None or not last.passed:
        return ""
    is_paired = best.against("eager") is not None and last.against("eager") is not None
    is_longer = best.time.median_ms > last.time.median_ms
    if is_paired and is_longer and (times_as_fast(best, last) or 0.0) > 1.0:
        return " by its speedup, though not by its time, which other work changes more"
    return ", though noise may hide which is faster" if tied(best, last) else ""


def hot_of(brief: RouteBrief) -> str:
    """The sketch's hot operation, in a sentence; empty if its cost is unknown."""
    cost, standing = cost_of(brief), standing_of(brief)
    return hot_operation(cost, standing is None or not standing.at_roofline) if cost is not None else ""
