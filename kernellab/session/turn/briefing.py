"""Each role's brief, made from its line of turns. A person receives the same brief."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from kernellab.agents.briefs import AnalyseBrief, Attempt, CodeBrief, DesignBrief, RouteBrief, best_of, start_of
from kernellab.agents.roles import is_model
from kernellab.errors import SessionError
from kernellab.models.ledger import tokens
from kernellab.records import Author, Role, Route, Verdict
from kernellab.session.record.obligations import obligations_at
from kernellab.session.record.records import Turn, TurnState
from kernellab.session.record.state import State
from kernellab.session.turn.context import Bench
from kernellab.sketch.syntax.pins import check_pins
from kernellab.target import Backend


class Start(NamedTuple):
    """The sketch from which a Designer continues, and the values of its tunables; None before the first sketch."""

    sketch: str | None = None
    constexpr: Mapping[str, int | float] = MappingProxyType({})


def design_brief(bench: Bench, state: State, parent: str | None) -> DesignBrief:
    """Return the Designer's brief for a turn on ``parent``."""
    start = _design_start(state, parent)
    return DesignBrief(
        task=bench.task(),
        history=state.attempts(parent) if parent else (),
        route=route_to(state, parent),
        previous=start.sketch,
        previous_constexpr=dict(start.constexpr),
        notes=state.notes_for(Role.DESIGNER),
        **_common(bench, state, parent),
    )


def _design_start(state: State, parent: str | None) -> Start:
    """The line's best sketch if the last one is slower; otherwise the last one that was not refused."""
    now, best = obligations_at(state, parent), _better(state, parent)
    # a sketch without a pin or constraint that a person set later is not a valid start
    keeps_pins = best is not None and not check_pins(now.sketch, best.sketch or "", Author.MODEL, now.kept)
    if best is not None and best.candidate is not None and best.sketch and keeps_pins:
        return Start(best.sketch, best.candidate.constexpr)
    return Start(now.sketch, _values(state, parent, now.turn)) if now.turn is not None else Start()


def _better(state: State, parent: str | None) -> Attempt | None:
    """Return the best attempt of the line if the last one passed and is slower."""
    rounds = state.attempts(parent) if parent else ()
    best, last = best_of(rounds), rounds[-1] if rounds else None
    passed = last is not None and last.verdict is not None and last.verdict.passed
    return best if passed and best is not last else None


def _values(state: State, parent: str | None, design_turn: Turn) -> dict[str, int | float]:
    """The tunables of the last candidate of a sketch; before the first candidate, those that its Designer chose."""
    candidate = state.candidate(parent) if parent else None
    is_same_sketch = candidate is not None and candidate.sketch == design_turn.sketch
    return {**design_turn.constexpr, **(candidate.constexpr if candidate is not None and is_same_sketch else {})}


def code_brief(bench: Bench, state: State, parent: str | None) -> CodeBrief:
    """Return the Coder's brief for a turn on ``parent``.

    Raises:
        SessionError: there is no sketch to write code from, and the session requires one.
    """
    # a sketch that was refused for a person's pin is not coded, wherever the work is sent
    design_turn = obligations_at(state, parent).turn
    if design_turn is None and "sketch" not in bench.created.ablation:
        raise SessionError(
            "There is no sketch to write code from.", "Redirect to the Designer, or write one with edit_sketch(text)."
        )
    candidate = state.candidate(parent) if parent else None
    start = start_of(state.attempts(parent), design_turn.sketch if design_turn else None) if parent else None
    if start is not None and start.candidate is not None:
        candidate = start.candidate
    return CodeBrief(
        task=bench.task(),
        sketch=design_turn.sketch or "" if design_turn else "",
        constexpr={**(design_turn.constexpr if design_turn else {}), **bench.created.constexpr},
        design=design_turn.rationale if design_turn else "",
        history=state.attempts(parent) if parent else (),
        route=route_to(state, parent),
        previous=candidate.source if candidate else None,
        previous_sketch=candidate.sketch if candidate else None,
        previous_constexpr=candidate.constexpr if candidate else {},
        notes=state.notes_for(Role.CODER),
        **_common(bench, state, parent),
    )


def route_brief(bench: Bench, state: State, parent: str | None) -> RouteBrief:
    """Return the Conductor's brief for a turn on ``parent``."""
    last = state.standing(parent) if parent else None
    design_turn = state.sketch_turn(parent) if parent else None
    has_code = last is not None and last.role in (Role.CODER, Role.VERIFIER)
    rounds = state.attempts(parent) if parent else ()
    judged = rounds[-1] if rounds and rounds[-1].route is None else None
    best = state.best()
    return RouteBrief(
        task=bench.task(),
        sketch=design_turn.sketch if design_turn else None,
        gate=design_turn.gate if design_turn else None,
        candidate=state.candidate(parent) if has_code else None,
        verdict=last.verdict if last else None,
        history=rounds[:-1] if judged else rounds,
        judged=judged,
        turns_left=max(0, state.created.max_turns - state.unattended),
        error=f"{last.error} {last.remedy}".strip() if last and last.state is TurnState.FAILED else "",
        notes=state.notes_for(Role.CONDUCTOR),
        improve=seeks_faster(state),
        improvers=improving_roles(state),
        best=best.verdict if best else None,
        request_tokens=_request_tokens(state),
        measures=_measures(bench, state, design_turn),
        **_common(bench, state, parent),
    )


def _request_tokens(state: State) -> float | None:
    exchanges = state.exchanges()
    return sum(tokens(exchange.usage) for exchange in exchanges) / len(exchanges) if exchanges else None


def _measures(bench: Bench, state: State, design_turn: Turn | None) -> bool:
    """Whether the rules Designer can improve the design by measuring. A person's sketch is not measured."""
    return (
        state.roles.get(Role.DESIGNER, "rules") == "rules"
        and design_turn is not None
        and design_turn.author is Author.RULES
        and not state.created.tune
        and not any(turn.route is not None and turn.route.measure for turn in state.turns.values())
        and bench.target().backend is not Backend.INTERPRETER
    )


def analyse_brief(bench: Bench, state: State, parent: str | None, question: str) -> AnalyseBrief:
    """Return the Analyst's brief for a turn on ``parent``."""
    best = state.best()
    return AnalyseBrief(
        task=bench.task(),
        history=state.attempts(parent) if parent else (),
        best=best.verdict if best else None,
        question=question,
        notes=state.notes_for(Role.ANALYST),
        **_common(bench, state, parent),
    )


def seeks_faster(state: State) -> bool:
    """Whether the session continues after a kernel passed. The rules have nothing more to try; a model may have."""
    if state.created.improve is not None:
        return state.created.improve
    return any(is_model(state.roles.get(role, "rules")) for role in (Role.DESIGNER, Role.CODER))


def improving_roles(state: State) -> frozenset[Role]:
    """The roles that may find a kernel faster than one that passed."""
    if "sketch" in state.created.ablation:
        return frozenset((Role.CODER,))
    both = frozenset((Role.DESIGNER, Role.CODER))
    # the rules Coder always lowers a sketch in the same way
    return frozenset(role for role in both if state.roles.get(role, "rules") != "rules") or frozenset((Role.DESIGNER,))


def headroom(verdict: Verdict) -> float | None:
    """The share of the speed-of-light bound that a kernel reaches, 0 to 1; None without a credible bound."""
    return None if verdict.bound_share is None else min(1.0, verdict.bound_share)


def route_to(state: State, parent: str | None) -> Route | None:
    """The route that sent the work to a turn on ``parent``."""
    last = state.standing(parent) if parent else None
    return last.route if last else None


def budget_left(bench: Bench) -> str:
    """The remaining budget, in words; empty without limits."""
    spent = bench.budget.spent()
    limits = bench.budget.limits
    formats = {
        "tokens": "{:,.0f} tokens",
        "usd": "{:.2f} US dollars",
        "minutes": "{:.1f} minutes",
        "gpu_s": "{:.0f} GPU s",
    }
    amounts = [
        text.format(max(0.0, limit - spent[name]))
        for name, text in formats.items()
        if (limit := getattr(limits, name)) is not None
    ]
    return ", ".join(amounts)


def _common(bench: Bench, state: State, parent: str | None) -> dict[str, Any]:
    best = state.best()
    now = obligations_at(state, parent)
    return {
        # the rates from which the verdicts' bound is computed
        "target": state.at_rates(bench.target()),
        "headroom": headroom(best.verdict) if best else None,
        "best_turn": best.number if best else None,
        "bound_ms": state.bound_ms,
        "budget_left": budget_left(bench),
        "ablation": frozenset(bench.created.ablation),
        "pins": tuple(f"line {number}: {text}" for number, text in now.kept.lines(now.sketch)),
        "kept": now.kept,
        "allow_library": bench.options().allow_library,
    }


def brief_of(bench: Bench, state: State, role: Role, parent: str | None) -> DesignBrief | CodeBrief | RouteBrief:
    """Return the brief of a role that a person can play."""
    if role is Role.DESIGNER:
        return design_brief(bench, state, parent)
    if role is Role.CODER:
        return code_brief(bench, state, parent)
    if role is Role.CONDUCTOR:
        return route_brief(bench, state, parent)
    raise SessionError(f"The {role.value} has no brief.", "Choose designer, coder or conductor.")


def asked_role(state: State) -> Role | None:
    """Return the role that a person is asked to play now."""
    question = state.question
    return question.role if question is not None and question.kind.value == "brief" else None
