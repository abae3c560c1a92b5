"""What each role receives: its brief, made from the line of turns that it works on. A person gets the same one."""

from __future__ import annotations

from typing import Any

from kernellab.agents.briefs import AnalyseBrief, Attempt, CodeBrief, DesignBrief, RouteBrief, best_of, start_of
from kernellab.agents.roles import is_model
from kernellab.errors import SessionError
from kernellab.models.ledger import tokens
from kernellab.records import Author, Role, Route, Verdict
from kernellab.session.record.records import Turn, TurnState
from kernellab.session.record.state import State
from kernellab.session.turn.context import Bench
from kernellab.sketch.syntax.pins import check_pins, pinned_lines
from kernellab.target import Backend


def design_brief(bench: Bench, state: State, parent: str | None) -> DesignBrief:
    designed = state.sketch_turn(parent) if parent else None
    best = _better(state, parent)
    start = (designed.sketch, _values(state, parent, designed)) if designed else (None, {})
    # one without a pin or a constraint that a person has set since is no start
    allowed = best is not None and not check_pins(start[0] or "", best.sketch or "", Author.MODEL)
    if best is not None and best.candidate is not None and best.sketch and allowed:
        start = (best.sketch, dict(best.candidate.constexpr))
    return DesignBrief(
        task=bench.task(),
        history=state.attempts(parent) if parent else (),
        route=route_to(state, parent),
        previous=start[0],
        previous_constexpr=start[1],
        notes=state.told(Role.DESIGNER),
        **_common(bench, state, parent),
    )


def _better(state: State, parent: str | None) -> Attempt | None:
    """The best round of the line of turns where the last one passed and is slower: what the next turn starts from."""
    rounds = state.attempts(parent) if parent else ()
    best, last = best_of(rounds), rounds[-1] if rounds else None
    passed = last is not None and last.verdict is not None and last.verdict.passed
    return best if passed and best is not last else None


def _values(state: State, parent: str | None, designed: Turn | None) -> dict[str, int | float]:
    """The tunables' values of the last candidate of a sketch; those that its Designer chose, before there is one."""
    earlier = state.candidate(parent) if parent else None
    if designed is None:
        return {}
    made = earlier is not None and earlier.sketch == designed.sketch
    return {**designed.constexpr, **(earlier.constexpr if earlier is not None and made else {})}


def code_brief(bench: Bench, state: State, parent: str | None) -> CodeBrief:
    """
    Raises:
        SessionError: there is no sketch to write code from, and the session does not work without.
    """
    designed = state.sketch_turn(parent) if parent else None
    if designed is None and "sketch" not in bench.created.ablation:
        raise SessionError(
            "There is no sketch to write code from.", "Redirect to the Designer, or write one with edit_sketch(text)."
        )
    earlier = state.candidate(parent) if parent else None
    start = start_of(state.attempts(parent), designed.sketch if designed else None) if parent else None
    if start is not None and start.candidate is not None:
        earlier = start.candidate
    return CodeBrief(
        task=bench.task(),
        sketch=designed.sketch or "" if designed else "",
        constexpr={**(designed.constexpr if designed else {}), **bench.created.constexpr},
        design=designed.rationale if designed else "",
        history=state.attempts(parent) if parent else (),
        route=route_to(state, parent),
        previous=earlier.source if earlier else None,
        previous_sketch=earlier.sketch if earlier else None,
        previous_constexpr=earlier.constexpr if earlier else {},
        notes=state.told(Role.CODER),
        **_common(bench, state, parent),
    )


def route_brief(bench: Bench, state: State, parent: str | None) -> RouteBrief:
    last = state.standing(parent) if parent else None
    designed = state.sketch_turn(parent) if parent else None
    coded = last is not None and last.role in (Role.CODER, Role.VERIFIER)
    rounds = state.attempts(parent) if parent else ()
    judged = rounds[-1] if rounds and rounds[-1].route is None else None
    best = state.best()
    return RouteBrief(
        task=bench.task(),
        sketch=designed.sketch if designed else None,
        gate=designed.gate if designed else None,
        candidate=state.candidate(parent) if coded else None,
        verdict=last.verdict if last else None,
        history=rounds[:-1] if judged else rounds,
        judged=judged,
        turns_left=max(0, state.created.max_turns - state.unattended),
        error=f"{last.error} {last.remedy}".strip() if last and last.state is TurnState.FAILED else "",
        notes=state.told(Role.CONDUCTOR),
        improve=improves(state),
        improvers=improvers(state),
        best=best.verdict if best else None,
        request_tokens=_request_tokens(state),
        measures=_measures(bench, state, designed),
        **_common(bench, state, parent),
    )


def _request_tokens(state: State) -> float | None:
    asked = state.exchanges()
    return sum(tokens(exchange.usage) for exchange in asked) / len(asked) if asked else None


def _measures(bench: Bench, state: State, designed: Turn | None) -> bool:
    """Would the rules Designer measure its schedules and tunables, if it were asked to? A person's sketch is left."""
    return (
        state.roles.get(Role.DESIGNER, "rules") == "rules"
        and designed is not None
        and designed.author is Author.RULES
        and not state.created.tune
        and bench.target().backend is not Backend.INTERPRETER
    )


def analyse_brief(bench: Bench, state: State, parent: str | None, question: str) -> AnalyseBrief:
    best = state.best()
    return AnalyseBrief(
        task=bench.task(),
        history=state.attempts(parent) if parent else (),
        best=best.verdict if best else None,
        question=question,
        notes=state.told(Role.ANALYST),
        **_common(bench, state, parent),
    )


def improves(state: State) -> bool:
    """Does the session go on after a kernel passed? The rules have nothing more to try; a model may have."""
    if state.created.improve is not None:
        return state.created.improve
    return any(is_model(state.roles.get(role, "rules")) for role in (Role.DESIGNER, Role.CODER))


def improvers(state: State) -> frozenset[Role]:
    """The roles that may find something faster than a kernel that passed."""
    if "sketch" in state.created.ablation:
        return frozenset((Role.CODER,))
    both = frozenset((Role.DESIGNER, Role.CODER))
    # the rules Coder lowers a sketch the same way each time
    return frozenset(role for role in both if state.roles.get(role, "rules") != "rules") or frozenset((Role.DESIGNER,))


def headroom(verdict: Verdict) -> float | None:
    """The share of the speed-of-light bound that a kernel reaches, 0 to 1; None without a bound to believe."""
    return None if verdict.bound_share is None else min(1.0, verdict.bound_share)


def route_to(state: State, parent: str | None) -> Route | None:
    """The route that sent the work to a turn on ``parent``."""
    last = state.standing(parent) if parent else None
    return last.route if last else None


def budget_left(bench: Bench) -> str:
    """What may still be spent, in words; empty without limits."""
    spent = bench.budget.spent()
    limits = bench.budget.limits
    words = {
        "tokens": "{:,.0f} tokens",
        "usd": "{:.2f} US dollars",
        "minutes": "{:.1f} minutes",
        "gpu_s": "{:.0f} GPU s",
    }
    left = [
        text.format(max(0.0, limit - spent[name]))
        for name, text in words.items()
        if (limit := getattr(limits, name)) is not None
    ]
    return ", ".join(left)


def _common(bench: Bench, state: State, parent: str | None) -> dict[str, Any]:
    best = state.best()
    designed = state.sketch_turn(parent) if parent else None
    pins = pinned_lines(designed.sketch) if designed and designed.sketch else []
    return {
        # by the rates that the verdicts' bound is reckoned by
        "target": state.at_rates(bench.target()),
        "headroom": headroom(best.verdict) if best else None,
        "best_turn": best.number if best else None,
        "bound_ms": state.bound_ms,
        "budget_left": budget_left(bench),
        "ablation": frozenset(bench.created.ablation),
        "pins": tuple(f"line {number}: {text}" for number, text in pins),
        "allow_library": bench.options().allow_library,
    }


def brief_of(bench: Bench, state: State, role: Role, parent: str | None) -> DesignBrief | CodeBrief | RouteBrief:
    """The brief of a role that a person can play."""
    if role is Role.DESIGNER:
        return design_brief(bench, state, parent)
    if role is Role.CODER:
        return code_brief(bench, state, parent)
    if role is Role.CONDUCTOR:
        return route_brief(bench, state, parent)
    raise SessionError(f"The {role.value} has no brief.", "Choose designer, coder or conductor.")


def asked_role(state: State) -> Role | None:
    """The role that a person is asked to play now."""
    question = state.question
    return question.role if question is not None and question.kind.value == "brief" else None
