"""What follows when a role answers that it knows nothing faster: the work ends, or the other role is asked first."""

from __future__ import annotations

from kernellab.agents.rules.advice import advise, route_facts
from kernellab.agents.rules.classify import ErrorClass
from kernellab.agents.rules.performance import starting
from kernellab.agents.rules.suggestions import slow_because
from kernellab.records import Role, Route, RouteKind
from kernellab.session.record.records import Turn
from kernellab.session.record.state import State
from kernellab.session.turn.briefing import improving_roles, route_brief, seeks_faster
from kernellab.session.turn.context import Bench


def finished(bench: Bench, state: State, turn: Turn, route: Route) -> Turn:
    """Return the turn of a role that reported by ``route`` that the work is done."""
    next_role = _next_improver(state, turn.role)
    if next_role is not None and seeks_faster(state):
        route = _asking(bench, state, turn, route, next_role)
    return turn.model_copy(update={"route": route, "rationale": route.reason})


def _next_improver(state: State, finished_role: Role) -> Role | None:
    """The other role, if it may find something faster and was not asked to since the best kernel was made."""
    others = improving_roles(state) - {finished_role}
    return next((r for r in (Role.DESIGNER, Role.CODER) if r in others and not _was_asked(state, r)), None)


def _asking(bench: Bench, state: State, turn: Turn, route: Route, role: Role) -> Route:
    """The route that asks ``role`` for something faster."""
    reason = (
        f"The {turn.role.value} knows nothing faster: {route.reason.rstrip('.')}. The {role.value} was not "
        "asked for something faster than the best kernel yet."
    )
    judged_turn = _judged_at(state, turn.parent)
    judged_id = judged_turn.id if judged_turn is not None else turn.parent
    to = RouteKind(role.value)
    start, of_earlier = starting(route_brief(bench, state, judged_id), to)
    is_correct = start.verdict is not None and start.verdict.passed
    suggestion, facts = slow_because(start, to) if is_correct else (advise(start, to), [])
    return Route(
        to=to, error_class=ErrorClass.PERFORMANCE.value, reason=reason, suggestion=f"{of_earlier}{suggestion}",
        facts=(*route_facts(start), *facts),
    )  # fmt: skip


def _judged_at(state: State, turn_id: str | None) -> Turn | None:
    """The newest turn with a verdict at ``turn_id`` or above it."""
    return next((t for t in state.up(turn_id) if t.verdict is not None), None)


def _was_asked(state: State, role: Role) -> bool:
    """Whether ``role`` was asked for something faster than the best kernel: routed to with a kernel that had passed.
    What it was asked before that kernel was made, or about one that failed, does not count."""
    best = state.best()
    for earlier_turn in state.turns.values():
        head = state.standing(earlier_turn.parent) if earlier_turn.parent else None
        if earlier_turn.role is not role or head is None or head.route is None:
            continue
        judged_turn = _judged_at(state, head.id)
        passed = judged_turn is not None and judged_turn.verdict is not None and judged_turn.verdict.passed
        if passed and (best is None or earlier_turn.number > best.turn.number):
            return True
    return False
