"""The rules Conductor: Algorithm 1 of the AKG paper, driven by evidence instead of a model's guess.

The paper routes only by the class of the error. Here the sketch was *run* before any code existed, so the gate decides
first: a wrong sketch goes to the Designer; a right sketch with wrong code goes to the Coder, whatever the numbers
look like. The class decides only if the sketch could not be run, and the reason says so.
"""

from __future__ import annotations

from collections.abc import Sequence

from kernellab.agents.briefs import Attempt, RouteBrief
from kernellab.agents.designs import design_of
from kernellab.agents.rules.advice import advise, follows_sketch, route_facts
from kernellab.agents.rules.classify import CODE_ERRORS, LATE, ErrorClass, classify, is_of_judge, key_of
from kernellab.agents.rules.coder import is_verbatim
from kernellab.agents.rules.performance import (
    hot_of,
    is_far,
    no_gain,
    standing_of,
    starting,
    stays_best,
    unasked,
    untried,
    why_finish,
)
from kernellab.agents.rules.slow import is_slow, may_measure
from kernellab.agents.rules.suggestions import slow_because
from kernellab.conditions import LibraryShare, of
from kernellab.records import Author, GateResult, GateState, Role, Route, RouteKind, Stage, Verdict
from kernellab.records.standing import Standing

#: Number of repetitions of the same failure that count as a loop.
SAME = 3


class RulesConductor:
    """Routes by rule; the same brief always gives the same route."""

    author = Author.RULES

    def route(self, brief: RouteBrief) -> Route:
        """Return where the work goes next, the reason, and a suggestion."""
        if brief.verdict is not None and brief.verdict.passed:
            return _right(brief, brief.verdict)
        route = self._by_evidence(brief)
        if route.to is RouteKind.STOP:
            return route
        to_coder = bool(brief.ablation & {"routing", "sketch"})
        if to_coder:
            route = _route(RouteKind.CODER, ErrorClass(route.error_class), route.reason, brief)
        route = _out_of_loop(brief, route)
        if to_coder and route.to is RouteKind.DESIGNER:
            route = route.model_copy(update={"to": RouteKind.STOP})
        if route.to is not RouteKind.STOP and brief.turns_left <= 0:
            reason = f"The limit of turns is reached. Last: {route.reason}"
            route = route.model_copy(update={"to": RouteKind.STOP, "reason": reason})
        if route.to is RouteKind.STOP and brief.best is not None and brief.improve:
            reason = f"An earlier kernel stays the best: {_passed(brief.best)} {route.reason}"
            return route.model_copy(update={"to": RouteKind.FINISH, "reason": reason})
        return route

    def _by_evidence(self, brief: RouteBrief) -> Route:
        gate, verdict = brief.gate, brief.verdict
        if verdict is None:
            return _without_code(brief)
        error = classify(verdict)
        if error is ErrorClass.ENVIRONMENT:
            reason = f"No role can fix this machine: {verdict.reason}"
            return _route(RouteKind.STOP, error, reason, brief)
        to_code, quotes = error in CODE_ERRORS, verdict.reason
        if is_of_judge(verdict.evidence):
            if _streak(brief.history, _key(gate, verdict, "")):
                reason = f"A longer deadline is needed, which no role can give: {quotes}"
                return _route(RouteKind.STOP, ErrorClass.ENVIRONMENT, reason, brief)
            return _route(RouteKind.CODER, error, "The judge's time ran out, and not by the kernel: ", brief, quotes)
        if verdict.evidence is not None and verdict.evidence.signature in LATE:
            # the rules lower a sketch to the same code each time
            to_code = brief.sketch is None or Role.CODER in brief.improvers
            reason = "A time limit of the judge ended the run, and no number of it was compared: "
        elif brief.sketch is None:
            reason = f"There is no sketch to check the code against; a {error.value} error is routed by its class."
            quotes = ""
        elif gate is not None and gate.state is GateState.RIGHT and not to_code and is_verbatim(brief):
            reason = (
                "The code is byte for byte what the sketch compiles to, and the sketch was run on small sizes only: "
            )
        elif gate is not None and gate.state is GateState.RIGHT:
            # code that does not build was not compared with the sketch
            is_built = verdict.stage not in (Stage.STATIC, Stage.BUILD)
            reason = "The gate found the sketch right, so the code is wrong: " if is_built else ""
            to_code = True
        elif gate is not None and gate.state is GateState.WRONG:
            to_code = False
            reason, quotes = "The sketch itself is wrong: ", gate.reason
        else:
            detail = gate.reason.rstrip(".") if gate else "it was not gated"
            reason = f"The sketch could not be run ({detail}), so the class of the error decides: "
        return _route(RouteKind.CODER if to_code else RouteKind.DESIGNER, error, reason, brief, quotes)


def _right(brief: RouteBrief, verdict: Verdict) -> Route:
    """Route after a kernel that passed: finish, or continue to a faster one while there is headroom."""
    end = why_finish(brief)
    if end:
        is_reported = brief.improve or is_slow(verdict)
        earlier = "" if brief.improve else stays_best(brief)  # a search for more already reports this
        reason = " ".join(filter(None, [_passed(verdict, brief.allow_library), earlier]))
        if is_reported:
            reason += f" {end}{untried(brief)}"
        elif is_far(brief):
            reason += f" {brief.reached.capitalize()}.{untried(brief)}"
        return Route(
            to=RouteKind.FINISH, error_class=ErrorClass.NONE.value, reason=reason, facts=tuple(route_facts(brief))
        )
    if may_measure(brief):
        return _back(brief, verdict)
    roles_left = unasked(brief)
    is_design = brief.sketch is not None and Role.DESIGNER in brief.improvers
    standing = standing_of(brief)
    if is_design and Role.CODER in brief.improvers and standing is not None:
        # a new sketch would be lowered without what makes handwritten code faster than its sketch allows
        is_beyond = standing.is_beyond_sketch and not follows_sketch(brief)
        is_design = not (standing.code_costs_more or is_beyond)
    to = RouteKind.DESIGNER if is_design else RouteKind.CODER
    if no_gain(brief) and roles_left and Role(to.value) not in roles_left:
        # the role that was asked found nothing faster
        to = RouteKind(roles_left[0].value)
    start, of_earlier = starting(brief, to)
    suggestion, facts = slow_because(start, to)
    passed_text = _passed(verdict, brief.allow_library, ends=False, best=brief.best)
    return Route(
        to=to,
        error_class=ErrorClass.PERFORMANCE.value,
        reason=f"There is headroom. {passed_text}",
        # the verdict already states that it passed
        quotes=passed_text if passed_text == f"Verified at {verdict.trust.value}." else "",
        suggestion=f"{of_earlier}{suggestion}",
        facts=(*route_facts(brief), *facts),
    )


def _back(brief: RouteBrief, verdict: Verdict) -> Route:
    """Route to the rules Designer, which has not measured its designs yet, with a kernel that is slow."""
    eager = verdict.against("eager")
    assert eager is not None
    certainty = "certainly" if eager.standing is Standing.SLOWER else "by its median"
    suggestion, facts = slow_because(brief)
    hot = hot_of(brief)
    return Route(
        to=RouteKind.DESIGNER,
        error_class=ErrorClass.PERFORMANCE.value,
        reason=f"Right at {verdict.trust.value}, and {certainty} slower: {eager.text}. {hot}".strip(),
        suggestion=f"Measure the designs and their tunables against each other. {suggestion}",
        facts=(*route_facts(brief), *facts),
    )


def _without_code(brief: RouteBrief) -> Route:
    """Route for a sketch that the gate refused, or that the Coder could not turn into code."""
    gate = brief.gate
    if brief.error:
        task_text = "write this sketch as code" if brief.sketch else "write code that can be used"
        reason = f"The Coder could not {task_text}: {brief.error}"
        return _route(RouteKind.DESIGNER, ErrorClass.API, reason, brief)
    if gate is None:
        return _route(RouteKind.DESIGNER, ErrorClass.ALGORITHM, "There is no sketch that was checked.", brief)
    faults = [d for d in gate.diagnostics if d.severity == "error"]
    error = ErrorClass.SYNTAX if faults else ErrorClass.ALGORITHM
    return _route(RouteKind.DESIGNER, error, f"The sketch is {gate.state.value}: ", brief, gate.reason)


def _route(to: RouteKind, error: ErrorClass, reason: str, brief: RouteBrief, quotes: str = "") -> Route:
    suggestion = "" if to is RouteKind.STOP else advise(brief, to)
    facts, full = tuple(route_facts(brief)), f"{reason}{quotes}"
    return Route(to=to, error_class=error.value, reason=full, suggestion=suggestion, facts=facts, quotes=quotes)


def _out_of_loop(brief: RouteBrief, route: Route) -> Route:
    """Route Coder -> Designer -> stop, if a role repeated the same failure or has nothing new to offer."""
    key = _key(brief.gate, brief.verdict, brief.error)
    streak = _streak(brief.history, key)
    reason = ""
    if route.to is RouteKind.CODER:
        tries = sum(1 for attempt in streak if attempt.route and attempt.route.to is RouteKind.CODER)
        if tries and _same_source(brief, streak):
            reason = "The Coder gave the same code again for the same failure"
        elif tries >= SAME - 1:
            reason = f"The same failure came back {tries + 1} times"
        if not reason:
            return route
        coder_only = brief.ablation & {"routing", "sketch"}
        consequence = "and the Coder alone is asked in this session" if coder_only else "so the Designer has its turn"
        route = route.model_copy(
            update={
                "to": RouteKind.DESIGNER,
                "reason": f"{reason}, {consequence}. {route.reason}",
                "suggestion": advise(brief, RouteKind.DESIGNER),
            }
        )
    tries = sum(1 for attempt in streak if attempt.route and attempt.route.to is RouteKind.DESIGNER)
    if tries and _same_sketch(brief, streak):
        reason = "The Designer gave the same sketch again for the same failure"
    elif tries >= SAME - 1:
        reason = f"The Designer's revisions left the same failure {tries + 1} times"
    else:
        return route
    return route.model_copy(
        update={
            "to": RouteKind.STOP,
            "reason": f"{reason}; a person or a model has to look. {route.reason}",
        }
    )


def _streak(history: Sequence[Attempt], now: str) -> list[Attempt]:
    """The latest attempts, back to the first with another failure."""
    streak: list[Attempt] = []
    for attempt in reversed(history):
        if attempt.route is None or _key(attempt.gate, attempt.verdict, "", attempt.route) != now:
            break
        streak.append(attempt)
    return streak


def _key(gate: GateResult | None, verdict: Verdict | None, error: str, route: Route | None = None) -> str:
    if verdict is not None:
        return key_of(verdict)
    coder_failed = bool(error) or (route is not None and gate is not None and route.error_class == ErrorClass.API.value)
    if coder_failed:
        return "no code"
    rules = sorted({d.rule or d.code for d in gate.diagnostics if d.severity == "error"}) if gate else []
    return f"gate|{gate.state.value if gate else ''}|{','.join(rules)}"


def _same_source(brief: RouteBrief, streak: Sequence[Attempt]) -> bool:
    """Whether identical code was judged before, for the same failure."""
    if brief.candidate is None:
        return False
    return any(a.candidate is not None and a.candidate.source.hash == brief.candidate.source.hash for a in streak)


def _same_sketch(brief: RouteBrief, streak: Sequence[Attempt]) -> bool:
    designer_attempts = [a for a in streak if a.route is not None and a.route.to is RouteKind.DESIGNER]
    design = design_of(brief.sketch or "", brief.candidate.constexpr if brief.candidate else {})
    designs = ((a.sketch, a.candidate.constexpr if a.candidate else {}) for a in designer_attempts)
    return any(sketch is not None and design_of(sketch, values) == design for sketch, values in designs)


def _passed(verdict: Verdict, allowed: bool = False, ends: bool = True, best: Verdict | None = None) -> str:
    """The text about a kernel that passed; ``best`` is the best of its session, possibly an earlier one."""
    # the verdict has the figures, which a later measurement of the same kernel refines
    is_slower = verdict.keeps_eager
    text = f"{'Right' if is_slower else 'Verified'} at {verdict.trust.value}."
    has_library = bool(of(verdict.conditions, LibraryShare))
    if has_library:
        share = f", which has {1 - verdict.own_share:.0%} of its time" if verdict.own_share is not None else ""
        text += f" It composes with the library{share}."
    if is_slower:
        so_far = "so far" if best is None or best.keeps_eager else "than this one, and not than an earlier one"
        faster = "is" if verdict.standing is Standing.SLOWER else "may be"
        text += f" {verdict.advice}" if ends else f" Eager {faster} faster {so_far}."
    if is_slower and ends and not (has_library or allowed):
        text += " With --allow-library a kernel may call the framework's own, labelled so."
    return text
