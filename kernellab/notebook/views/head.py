"""The workbench's header: status, buttons, the best kernel and what was spent; a ``Head`` of the protocol."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, get_args

from kernellab.models.ledger import reported, tokens, usage_of
from kernellab.notebook.board.predictions import Predictions
from kernellab.notebook.protocol import PROTOCOL, BestFigures, Button, Head, Headroom, LedgerFigures
from kernellab.notebook.views.at_turn import looked_at
from kernellab.notebook.views.card import card
from kernellab.notebook.views.facts import Facts
from kernellab.notebook.views.progress import Activity, doing, upcoming
from kernellab.notebook.views.verdict import (
    TRUST_WORDS,
    figure,
    machine,
    over_the_bound,
    speedup_title,
    time_text,
)
from kernellab.records import Role, RouteKind
from kernellab.session.engine.decisions import tuning_refusal
from kernellab.session.record.records import SessionStatus
from kernellab.session.record.standings import Best
from kernellab.session.record.state import State
from kernellab.session.record.view import target_words
from kernellab.session.trace import ledger_line

STATUS_WORDS = {
    SessionStatus.RUNNING: "running",
    SessionStatus.PAUSED: "paused",
    SessionStatus.WAITING: "waiting for you",
    SessionStatus.FINISHED: "finished",
    SessionStatus.STOPPED: "stopped",
    SessionStatus.FAILED: "failed",
}
#: roles that a person may hand out; no one may play the Verifier
PLAYED = (Role.DESIGNER, Role.CODER, Role.CONDUCTOR)
#: players that each role is offered, besides the one that it has
CHOICES = ("rules", "human", "model")


#: Nothing runs, or nothing is known of it.
AT_REST = Activity()


def status_words(state: State) -> str:
    """Where the session stands; of one that has finished, also that eager is to be kept."""
    if state.elsewhere:
        return state.status_words
    best = state.best() if state.status is SessionStatus.FINISHED else None
    advice = best.verdict.short_advice if best else ""
    return ", ".join(filter(None, [STATUS_WORDS[state.status], advice]))


def head(
    state: State,
    shown: str,
    facts: Facts,
    *,
    message: str = "",
    ledger: Mapping[str, Any] | None = None,
    predictions: Predictions | None = None,
    activity: Activity = AT_REST,
) -> Head:
    """``message`` is the last decision that could not be carried out; ``predictions`` are there in teaching mode."""
    standings = state.standings()
    target = state.target
    return {
        "protocol": PROTOCOL,
        "id": state.id,
        "name": state.created.name,
        "operator": facts.operator,
        "target": target_words(state),
        "dsl": target.dsl if target else state.created.dsl or "",
        "status": state.status.value,
        "status_text": status_words(state),
        "reason": state.reason,
        "message": message,
        "doing": doing(state, activity, facts.gathered),
        "current": state.head,
        "next": upcoming(state),
        "approval": state.approval,
        "roles": {role.value: state.roles.get(role, "rules") for role in played(state)},
        "notes": {role.value: list(state.notes_for(role)) for role, notes in state.notes.items() if notes},
        "role_choices": {role.value: choices(state.roles.get(role, "rules")) for role in played(state)},
        "can": can(state),
        "card": card(state, looked_at(state, shown)),
        "best": best_figures(standings[0], standings[1:]) if standings else None,
        "ledger": ledger_figures(ledger) if ledger and (ledger["total"]["requests"] or ledger["budget"]) else None,
        "teaching": predictions is not None,
        "prediction": predictions.view(state) if predictions is not None else None,
        "comparing": activity.measurement is not None,
        "sol_ms": state.bound_ms,
        # a kernel that should not replace eager is not offered
        "call": _call(state, facts) if standings and not standings[0].verdict.keeps_eager else "",
    }


def _call(state: State, facts: Facts) -> str:
    """How the best kernel is called from a cell."""
    args = ", ".join(a.name for a in facts.task.args if a.default is None) if facts.task else "..."
    return f"{state.created.name}.best({args})"


def played(state: State) -> list[Role]:
    return [*PLAYED, *(role for role in state.roles if role not in PLAYED)]


def choices(spec: str) -> list[str]:
    return [*CHOICES, spec] if spec not in CHOICES else list(CHOICES)


def can(state: State) -> dict[Button, bool]:
    """Which buttons do something in this state."""
    if state.elsewhere:
        return dict.fromkeys(get_args(Button), False)
    may_continue = _may_continue(state)
    return {
        "step": may_continue,
        "run": may_continue,
        "pause": state.status is SessionStatus.RUNNING,
        "fork": bool(state.turns),
        "undo": bool(state.decisions),
        "stop": not state.status.ended,
        "approve": state.status is SessionStatus.WAITING and state.question is not None,
        "edit": bool(state.turns) or state.status is SessionStatus.WAITING,
        "tune": _may_tune(state),
    }


def _may_continue(state: State) -> bool:
    """Can the session be continued by a button?"""
    turn = state.head_turn
    has_stopped = turn is not None and turn.route is not None and turn.route.to is RouteKind.STOP
    # an open question is answered on its card alone: Step and Run would be the same answer under other names
    is_asking = state.question is not None and state.status is SessionStatus.WAITING
    # what a task's text does wrong, it does again: its cell is to be corrected and run
    is_task_wrong = state.status is SessionStatus.FAILED and turn is not None and turn.of_task
    is_at_rest = state.status not in (SessionStatus.RUNNING, SessionStatus.FINISHED)
    return is_at_rest and not has_stopped and not is_asking and not is_task_wrong


def _may_tune(state: State) -> bool:
    """Is a finish reached or proposed, and could the rules' designs still be measured against each other?"""
    head = state.head_turn
    ends = head is not None and head.route is not None and head.route.to is RouteKind.FINISH
    rests = state.status in (SessionStatus.FINISHED, SessionStatus.WAITING)
    if not (ends and rests) or state.created.tune or state.target is None or state.best() is None:
        return False
    if any(turn.route is not None and turn.route.measure for turn in state.turns.values()):
        return False
    return tuning_refusal(state) is None


# -- numbers -----------------------------------------------------------------------------------------------------------


def best_figures(best: Best, others: Sequence[Best] = ()) -> BestFigures:
    """``BestFigures``: the fastest candidate, each number with what it means; ``others`` come after it."""
    verdict = best.verdict
    time, where = verdict.time, "; ".join(filter(None, [TRUST_WORDS[verdict.trust], machine(verdict)]))
    headroom: Headroom | None = None
    if time is not None and verdict.sol_ms:
        share = verdict.bound_share
        words = (
            f"the speed-of-light bound is {verdict.sol_ms:.3g} ms, the kernel takes {time.median_ms:.3g} ms; {where}"
        )
        if share is None:
            words += f"; {over_the_bound(verdict)}"
        headroom = {"share": share, "text": verdict.bound_text, "title": words}
    return {
        "turn": best.turn.id,
        "number": best.number,
        "time": figure(
            time_text(time),
            f"median of {time.samples} calls, quartiles {time.q1_ms:.3g} to {time.q3_ms:.3g} ms; {where}",
        )
        if time
        else None,
        "speedups": [
            {
                "baseline": c.baseline,
                "value": c.speedup,
                "low": c.low,
                "high": c.high,
                "text": c.text,
                "title": speedup_title(c, verdict),
            }
            for c in verdict.comparisons
        ],
        "headroom": headroom,
        "trust": verdict.trust.value,
        "label": verdict.label,
        "tied": [other.number for other in others if best.tied(other)],
    }


def ledger_figures(ledger: Mapping[str, Any]) -> LedgerFigures:
    """``LedgerFigures`` from what :meth:`kernellab.session.trace.Trace.ledger` gives."""
    total, budget = ledger["total"], str(ledger["budget"] or "")
    text, usage = ledger_line(ledger) or "0 tokens", usage_of(total)
    cost = "cost not reported" if tokens(usage) or usage.untold else ""
    if usage.usd is not None:
        cost = f"{usage.usd:.4f} USD, by the price table or as an agent tells"
    return {
        "tokens": reported(
            f"{usage.input_tokens:,} tokens in ({usage.cached_tokens:,} cached); {usage.output_tokens:,} tokens out",
            tokens(usage),
            usage.untold,
        ),
        "cost": cost,
        "seconds": total["seconds"],
        "budget": budget,
        "warning": ledger["warning"],
        "text": f"{text}; budget {budget}" if budget else text,
    }
