"""The workbench's header, its buttons and the card: a ``Head`` of the protocol."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, get_args

from kernellab.errors import CaptureError, DesignError, LoweringError, SketchError, names_of
from kernellab.models.chat import WAITING
from kernellab.models.ledger import reported, tokens, usage_of
from kernellab.notebook.board.predictions import Predictions
from kernellab.notebook.protocol import PROTOCOL, BestFigures, Button, Card, Head, Headroom, LedgerFigures
from kernellab.notebook.views.at_turn import looked_at, verdict_at
from kernellab.notebook.views.facts import Facts
from kernellab.notebook.views.verdict import (
    BASELINES,
    TRUST_WORDS,
    both,
    figure,
    machine,
    over_the_bound,
    speedup_title,
    time_text,
)
from kernellab.records import Author, Role, Route, RouteKind, StageResult, StageState
from kernellab.records.standing import Standing
from kernellab.session.engine.approval import Expected, expected
from kernellab.session.engine.comparing import Measurement
from kernellab.session.engine.decisions import tuning_refusal
from kernellab.session.engine.steps import Ask, Do, End, next_action
from kernellab.session.manual import ledger_line
from kernellab.session.record.records import Question, QuestionKind, SessionStatus, Turn, TurnState
from kernellab.session.record.standings import Best
from kernellab.session.record.state import State
from kernellab.session.record.view import outcome, stopped, target_words
from kernellab.verifier.protocol.stats import one_line_each

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
#: faults of a role by rules that the same input brings again
_OF_RULES = (CaptureError, DesignError, LoweringError, SketchError)
CHOICES = ("rules", "human", "model")


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
    comparing: Measurement | None = None,
    stages: Mapping[str, Sequence[StageResult]] | None = None,
    partial: str = "",
    said: str = "",
) -> Head:
    """``message`` is the last decision that could not be carried out; ``predictions`` are there in teaching mode;
    ``stages`` are what running verifications have behind them, by turn; ``partial`` is what a model
    writes; ``said`` is what the running turn says that it does."""
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
        "doing": doing(
            state, stages or {}, facts.gathered, partial, said, _timing(state, comparing) if comparing else ""
        ),
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
        "comparing": comparing is not None,
        "sol_ms": state.bound_ms,
        # a kernel that should not replace eager is not offered
        "call": _call(state, facts) if standings and not standings[0].verdict.keeps_eager else "",
    }


def doing(
    state: State, running: Mapping[str, Sequence[StageResult]], task_read: bool, partial: str = "", said: str = "",
    timing: str = "",
) -> str:  # fmt: skip
    """What the running turn waits for before its own work, or what a verification does and how long the rest took the
    last time a kernel passed here. ``timing`` is what is timed in the background: the words stand next to the running
    turn's role and seconds, and it is none of that turn's work."""
    parts, turn = running.get(state.head or ""), state.head_turn
    if parts is None or turn is None:
        return "" if turn is not None and turn.state is TurnState.RUNNING else timing
    if not parts:
        if turn.role is Role.VERIFIER:
            return f"waiting for the judge, which is {timing}" if timing else "waiting for the judge"
        if not task_read:
            return "reading the task"
        if partial.startswith(WAITING):
            return "waiting for its server"
        if said:
            return said
        return "no words yet" if turn.author is Author.MODEL and not partial else ""
    by_name = {part.name: part for part in one_line_each(parts)}
    at = next((part for part in reversed(parts) if part.state is StageState.RUNNING), None)
    if at is None or by_name[at.name].state is not StageState.RUNNING:
        return said  # after the stages: a run with the best so far
    words = f"{at.name.value}: {at.note}" if at.note else at.name.value
    passed = [turn.verdict for turn in state.turns.values() if turn.verdict is not None and turn.verdict.passed]
    if not passed:
        return words
    left = 0.0
    for stage in one_line_each(passed[-1].stages):
        done = by_name.get(stage.name)
        if done is None or done.state is StageState.RUNNING:
            left += max(0.0, stage.seconds - (done.seconds if done else 0.0))
    return f"{words}; about {max(1, round(left))} s left"


def _call(state: State, facts: Facts) -> str:
    """How the best kernel is called from a cell."""
    args = ", ".join(a.name for a in facts.task.args if a.default is None) if facts.task else "..."
    return f"{state.created.name}.best({args})"


def played(state: State) -> list[Role]:
    return [*PLAYED, *(role for role in state.roles if role not in PLAYED)]


def choices(spec: str) -> list[str]:
    return [*CHOICES, spec] if spec not in CHOICES else list(CHOICES)


def _timing(state: State, measurement: Measurement) -> str:
    """What a measurement in the background times: kernels, each named by the turn that wrote it."""
    numbers = [str((state.source_turn(turn) or state.turns[turn]).number) for turn in measurement.turns]
    if len(numbers) > 1:
        return f"timing turns {', '.join(numbers[:-1])} and {numbers[-1]} in one run"
    rivals = [BASELINES.get(name, name) for name in measurement.baselines if name != "eager"] or ["PyTorch eager"]
    return f"timing turn {numbers[0]} again, next to {' and '.join(rivals)}"


def can(state: State) -> dict[Button, bool]:
    """Which buttons do something in this state."""
    if state.elsewhere:
        return dict.fromkeys(get_args(Button), False)
    question, turn = state.question, state.head_turn
    ended = turn is not None and turn.route is not None and turn.route.to is RouteKind.STOP
    # an open question is answered on its card alone: Step and Run would be the same answer under other names
    open_question = question is not None and state.status is SessionStatus.WAITING
    # what a task's text does wrong, it does again: its cell is to be corrected and run
    wrong = state.status is SessionStatus.FAILED and turn is not None and turn.of_task
    rests = state.status not in (SessionStatus.RUNNING, SessionStatus.FINISHED)
    goes_on = rests and not ended and not open_question and not wrong
    return {
        "step": goes_on,
        "run": goes_on,
        "pause": state.status is SessionStatus.RUNNING,
        "fork": bool(state.turns),
        "undo": bool(state.decisions),
        "stop": not state.status.ended,
        "approve": state.status is SessionStatus.WAITING and state.question is not None,
        "edit": bool(state.turns) or state.status is SessionStatus.WAITING,
        "tune": _may_tune(state),
    }


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


# -- the card ----------------------------------------------------------------------------------------------------------


def open_card(state: State) -> str | None:
    """The id of the card that waits for an answer."""
    question = state.question
    return question.id if question is not None and state.status is SessionStatus.WAITING else None


def card(state: State, at: str | None) -> Card | None:
    """What the session asks or, looking back, what the Conductor proposed."""
    question = state.question
    if question is not None and state.status is SessionStatus.WAITING and at == state.head:
        asked = state.turns.get(question.turn or "")
        route = asked.route if asked and question.kind is QuestionKind.ROUTE else None
        # of an agent, what it would do
        wanted = question.suggestion.splitlines() if question.kind is QuestionKind.PERMISSION else []
        return {
            "id": question.id,
            "kind": question.kind.value,
            "role": question.role.value,
            "title": _proposes(state, route) if route else _title(question, asked),
            "text": route.reason if route else _text(question, asked),
            "hint": _hint(state, question),
            "retry": _to_keep(state, question)
            if question.kind is QuestionKind.BRIEF
            else not _replaces(state, question)
            and (question.kind is not QuestionKind.ERROR or _may_retry(state, question)),
            "evidence": _evidence(route) if route else wanted,
            "to": question.to.value if question.to else None,
            "suggestion": question.suggestion,
            "pending": True,
            "editable": question.kind is QuestionKind.ROUTE
            or (question.kind is QuestionKind.BRIEF and question.role is Role.CONDUCTOR),
        }
    turn = state.turns.get(at or "")
    return _proposed(turn, _since(state, turn)) if turn is not None and turn.route is not None else None


def _proposes(state: State, route: Route) -> str:
    """What a person whose sketch was refused has to know first is that, not where it would go next."""
    written = state.sketch_turn() if route.to is RouteKind.DESIGNER else None
    if written is not None and written.author is Author.HUMAN and written.is_sketch_refused:
        return "Your sketch is wrong."
    return f"The Conductor proposes: {route.to.value}."


def _since(state: State, turn: Turn) -> list[str]:
    """What a session that ended with ``turn`` did not know then: baselines that are certainly faster."""
    if turn.route is None or turn.route.to is not RouteKind.FINISH:
        return []
    verdict = verdict_at(state, turn.id)
    slower = [c for c in verdict.comparisons if c.standing is Standing.SLOWER] if verdict and verdict.passed else []
    return [f"Slower than {c.against}: {c.text}." for c in slower]


def _to_keep(state: State, question: Question) -> bool:
    """Is there a text that the person who is asked to write may keep?"""
    return bool(state.sketch_turn() if question.role is Role.DESIGNER else state.candidate())


def _may_retry(state: State, question: Question) -> bool:
    """Could the same role do better when asked again? Rules answer the same."""
    turn = state.turns.get(question.turn or "")
    by_rules = state.roles.get(question.role, "rules") == "rules"
    return not by_rules or (turn is not None and (turn.of_model or turn.fault not in names_of(*_OF_RULES)))


def _replaces(state: State, question: Question) -> bool:
    """Would approving have the rules Designer put its own sketch in the place of a person's, which it cannot correct?

    (A Coder by rules does correct a person's code: it writes what the sketch means.)
    """
    asked = question.kind is QuestionKind.ROUTE and question.to is RouteKind.DESIGNER
    written = state.sketch_turn() if asked and state.roles.get(Role.DESIGNER, "rules") == "rules" else None
    return written is not None and written.author is Author.HUMAN


def _hint(state: State, question: Question) -> str:
    """How to answer, by the controls of the workbench."""
    role = question.role.value.capitalize()
    if _replaces(state, question):
        return "Correct your sketch in the Sketch panel and apply it again; approving replaces it by the rules' own."
    if question.kind is QuestionKind.PERMISSION:
        return "A note to the role reaches the agent with its next result; Stop ends it."
    if question.kind is QuestionKind.TURN:
        return "You may edit the result first, or stop."
    if question.kind is QuestionKind.COST:
        return "Go on takes the turn; or write it yourself, or give the role to another below."
    if question.kind is QuestionKind.ERROR and question.role in (Role.DESIGNER, Role.CODER):
        again = "" if _may_retry(state, question) else f"The {role} by rules would answer the same again. "
        return f"{again}Write it yourself, or give the role to a model below and try again."
    if question.kind is QuestionKind.BRIEF:
        panels = {Role.DESIGNER: "the sketch in the Sketch panel", Role.CODER: "the kernel in the Code panel"}
        panel = panels.get(question.role)
        return f"Write {panel} and apply it." if panel else "Choose where the work goes."
    return question.answer


def _text(question: Question, asked: Turn | None) -> str:
    """What came of a turn that is done; the title says whose it was, and the hint how a brief is answered."""
    if question.kind is QuestionKind.BRIEF:
        return f"The Conductor suggests: {question.suggestion}" if question.suggestion else ""
    if asked is not None and question.kind is QuestionKind.ERROR and asked.error:
        return f"{asked.error} {asked.remedy}".strip()
    done = outcome(asked) if asked is not None and question.kind is QuestionKind.TURN else ""
    return done or question.text


def _evidence(route: Route) -> list[str]:
    """Its lines that the reason has not said, the two numbers of ``first wrong`` as a verdict shows them: the record
    has all their digits."""
    shown = []
    for fact in route.facts:
        if fact.of_stage and (route.to is RouteKind.FINISH or route.quotes):
            continue  # the reason says it
        if fact.got is not None or fact.want is not None:
            got, want = both(fact.got, fact.want)
            shown.append(f"{fact.text}: got {got}, want {want}")
        elif not fact.place:
            shown.append(fact.line)
        elif fact.text.rstrip(".") not in route.reason:
            shown.append(f"{fact.place}: {fact.text}")
    return shown


def _title(question: Question, asked: Turn | None) -> str:
    role = question.role.value.capitalize()
    return {
        QuestionKind.BRIEF: f"You are the {role}.",
        QuestionKind.ERROR: stopped(asked) if asked else "",
        QuestionKind.TURN: f"The {role} is done.",
        QuestionKind.ROUTE: f"{role}:",
        QuestionKind.COST: f"The {role}'s turn may be costly.",
        QuestionKind.PERMISSION: f"The {role}'s agent asks for permission.",
    }[question.kind]


def _proposed(turn: Turn, since: list[str]) -> Card:
    route = turn.route
    assert route is not None
    return {
        "id": turn.id,
        "kind": QuestionKind.ROUTE.value,
        "role": turn.role.value,
        "title": f"The Conductor proposed: {route.to.value}.",
        "text": route.reason,
        "hint": "",
        "retry": False,
        "evidence": [*since, *_evidence(route)],
        "to": route.to.value,
        "suggestion": route.suggestion,
        "pending": False,
        "editable": False,
    }


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


# -- what the session does next, who does it, and about what it costs --------------------------------------------------


def upcoming(state: State) -> str:
    """The turn that follows when the person continues, in words; "" while a turn runs or when nothing follows.

    Seconds and tokens are medians over the session's finished turns of the same role and player.
    """
    if state.status is SessionStatus.RUNNING or state.status.ended:
        return ""
    question = state.question if state.status is SessionStatus.WAITING else None
    if question is not None and question.kind is QuestionKind.ROUTE and question.to is not None:
        if question.to.value not in {role.value for role in Role}:
            return f"Next: the session ends ({question.to.value})"
        return _turn(state, Role(question.to.value))
    if question is not None and question.kind is QuestionKind.PERMISSION:
        return ""  # the turn that asks is still at work
    if question is not None and question.kind is QuestionKind.ERROR:
        return "" if state.roles.get(question.role, "rules") == "rules" else _turn(state, question.role)
    match next_action(state, lambda turn: False):
        case Do(role):
            return _turn(state, role)
        case Ask(asked) if asked.kind is QuestionKind.COST:
            return _turn(state, asked.role)
        case Ask(asked):
            return f"Next: you ({asked.role.value})"
        case End(status, _):
            return f"Next: the session ends ({status.value})"


def _turn(state: State, role: Role) -> str:
    turn = expected(state, role)
    if turn.player == "human":
        return f"Next: you ({role.value})"
    cost = _cost(turn)
    words = f"Next: {role.value.capitalize()}" + ("" if role is Role.VERIFIER else f" ({turn.player})")
    return f"{words}, {cost}" if cost else words


def _cost(cost: Expected) -> str:
    parts = [f"about {_seconds(cost.seconds)}"] if cost.seconds is not None else []
    if cost.free:
        return ", ".join([*parts, "no tokens"])
    if cost.tokens:
        parts.append(f"about {cost.tokens:,.0f} tokens")
    return ", ".join(parts) or "uses tokens"


def _seconds(seconds: float) -> str:
    return "1 s" if seconds < 1.5 else f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
