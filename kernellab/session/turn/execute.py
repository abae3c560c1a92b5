"""A turn's work, and the record of its role's answer. Blocking; runs in worker threads."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kernellab.agents.briefs import CodeReply, DesignBrief, DesignReply
from kernellab.agents.model.options import Options
from kernellab.agents.model.prompts.code import base_of
from kernellab.agents.roles import is_model
from kernellab.agents.rules.advice import advise, route_facts
from kernellab.agents.rules.classify import ErrorClass
from kernellab.agents.rules.performance import starting
from kernellab.agents.rules.slow import is_slow
from kernellab.agents.rules.suggestions import slow_because
from kernellab.errors import (
    CaptureError,
    DesignError,
    KernellabError,
    ModelError,
    SketchError,
)
from kernellab.models.exchanges import Exchange
from kernellab.records import (
    Author,
    Candidate,
    Diagnostic,
    GateResult,
    GateState,
    Role,
    Route,
    RouteKind,
)
from kernellab.session.engine.engine import engine
from kernellab.session.record.held import held
from kernellab.session.record.records import Reminder, Turn, TurnState
from kernellab.session.record.state import State
from kernellab.session.turn.briefing import analyse_brief, code_brief, design_brief, improvers, improves, route_brief
from kernellab.session.turn.claims import checked
from kernellab.session.turn.context import Bench, Channel
from kernellab.session.turn.fallback import Played, first_answer, unverified_lowering
from kernellab.session.turn.quoting import quoted
from kernellab.session.turn.recalling import begun, learn, reminded, reminders, starts
from kernellab.session.turn.verifying import verified
from kernellab.sketch.syntax.pins import Kept, check_pins
from kernellab.verifier.judge import turns

if TYPE_CHECKING:
    from kernellab.target import Target
    from kernellab.task import Task

#: Errors whose line numbers refer to the task.
_ABOUT_THE_TASK = (CaptureError, DesignError)


def perform(bench: Bench, state: State, turn: Turn, channel: Channel) -> Turn:
    """Do ``turn``'s work and return its finished record. A role's failure is a FAILED turn, not an exception.

    Raises:
        TaskError, TargetError: the session cannot continue.
    """
    began = time.perf_counter()
    bench.task(), bench.target(), bench.admitted()
    exchanges = list(channel.answered)
    channel = replace(channel, record=_both(exchanges.append, channel.record))
    try:
        if turn.role is Role.VERIFIER:  # the judge manages its own turns
            done = verified(bench, state, turn, channel)
        else:
            with turns.working(designing=True):
                done = _WORK[turn.role](bench, state, turn, channel)
    except KernellabError as error:
        message = quoted(error.message, bench.created.text) if isinstance(error, _ABOUT_THE_TASK) else error.message
        update = {"state": TurnState.FAILED, "error": message, "remedy": error.remedy, "fault": fault_of(error)}
        done = turn.model_copy(update=update | _findings(error))
    except Exception as error:
        if turn.role is Role.VERIFIER:
            engine().drop_verifier()
        done = turn.model_copy(
            update={
                "state": TurnState.FAILED,
                "error": f"The {turn.role.value} failed: {type(error).__name__}: {error}",
                "remedy": "Set KERNELLAB_DEBUG=1 for the traceback, and report it.",
                "fault": type(error).__name__,
            }
        )
        _debug(error)
    finally:
        for end in reversed(channel.at_end):
            end()
    if done.role is Role.VERIFIER and done.verdict is not None:
        learn(bench, state, done)
    seconds = time.perf_counter() - began
    if done.role is Role.CONDUCTOR and done.author is Author.MODEL and not exchanges:
        # the rules decided from the evidence, without a model
        done = done.model_copy(update={"author": Author.RULES})
    if turn.role is Role.DESIGNER and exchanges and turn.parent:
        done = done.model_copy(update={"refused": _refused_replies(state, turn.parent, exchanges)})
    if done.state is TurnState.RUNNING:
        done = done.model_copy(update={"state": TurnState.DONE, "checks": checked(bench, state, done)})
    return done.model_copy(update={"seconds": seconds})


def _both(first: Callable[[Exchange], None], second: Callable[[Exchange], None]) -> Callable[[Exchange], None]:
    def record(exchange: Exchange) -> None:
        first(exchange)
        second(exchange)

    return record


def _refused_replies(state: State, parent: str, heard: Iterable[Exchange]) -> tuple[str, ...]:
    """Pins and constraints that a Designer's replies broke, reply by reply. None of these replies became its sketch."""
    from kernellab.agents.model.reply.reading import AnswerError, parse_sketch

    now = held(state, parent)
    messages: list[str] = []
    for exchange in heard:
        try:
            revision = parse_sketch(exchange.reply, now.sketch or None).sketch
        except AnswerError:
            continue
        breaches = check_pins(now.sketch, revision, Author.MODEL, now.kept)
        messages += [f"line {d.line}: {d.message}" for d in breaches if d.severity == "error"]
    return tuple(messages)


def fault_of(error: KernellabError) -> str:
    """Return the kind of error as :attr:`Turn.fault` stores it."""
    return f"model:{error.kind.value}" if isinstance(error, ModelError) else type(error).__name__


def _design(bench: Bench, state: State, turn: Turn, channel: Channel) -> Turn:
    brief = design_brief(bench, state, turn.parent)
    if turn.sketch is None:
        spec, reminders_used = state.roles[Role.DESIGNER], list[Reminder]()
        brief = reminded(bench, brief) if spec != "rules" else brief
        outcome = first_answer(spec, lambda player: _designed(bench, player, brief, channel, reminders_used.extend))
        reply = outcome.answer
        if isinstance(reply, Route):
            return _ended(bench, state, turn, reply)
        turn = turn.model_copy(
            update={
                "remembered": (*reminders(brief.recalled), *reminders_used),
                "author": outcome.author or turn.author,
                "sketch": reply.sketch,
                "constexpr": dict(reply.constexpr),
                "rationale": f"{outcome.note}{reply.rationale}",
                "passed_over": outcome.passed_over,
                "claims": tuple(reply.claims),
                "library_calls": reply.library_calls,
                "rewritten": reply.rewritten,
            }
        )
    if "gate" in bench.created.ablation:
        return turn
    values = {**turn.constexpr, **bench.created.constexpr}
    return turn.model_copy(update={"gate": _gate(turn, brief.previous, brief.held, brief.task, brief.target, values)})


def _ended(bench: Bench, state: State, turn: Turn, route: Route) -> Turn:
    """A turn whose role reported that the work is done. An improver that was not asked for something faster since the
    best kernel was made is asked first."""
    pending = [
        role
        for role in (Role.DESIGNER, Role.CODER)
        if role in improvers(state) and role is not turn.role and not _was_asked(state, role)
    ]
    if pending and improves(state):
        reason = (
            f"The {turn.role.value} knows nothing faster: {route.reason.rstrip('.')}. The {pending[0].value} was not "
            "asked for something faster than the best kernel yet."
        )
        judged_turn = _judged_at(state, turn.parent)
        to = RouteKind(pending[0].value)
        judged_id = judged_turn.id if judged_turn is not None else turn.parent
        start, of_earlier = starting(route_brief(bench, state, judged_id), to)
        is_correct = start.verdict is not None and start.verdict.passed
        suggestion, facts = slow_because(start, to) if is_correct else (advise(start, to), [])
        route = Route(
            to=to, error_class=ErrorClass.PERFORMANCE.value, reason=reason, suggestion=f"{of_earlier}{suggestion}",
            facts=(*route_facts(start), *facts),
        )  # fmt: skip
    return turn.model_copy(update={"route": route, "rationale": route.reason})


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


def _designed(
    bench: Bench, spec: str, brief: DesignBrief, channel: Channel, remembered: Callable[[Iterable[Reminder]], None]
) -> DesignReply | Route:
    source = bench.created.start_source
    if bench.created.lift and source is not None and brief.previous is None and is_model(spec):
        from kernellab.agents.model import lift

        talk = bench.talk(Role.DESIGNER, spec, channel)
        return lift(source, brief.task, brief.target, talk, bench.knowledge())
    designer = bench.role(Role.DESIGNER, spec, channel)
    if spec == "rules" and brief.route is not None and brief.route.measure:
        from kernellab.session.turn.tuned import measured_design

        return measured_design(bench, designer, brief, channel, brief.route.measure)
    if (bench.created.tune or brief.allow_library) and spec == "rules" and brief.previous is None:
        from kernellab.session.turn.tuned import tuned_design

        return tuned_design(bench, designer, brief, channel, remembered)
    if spec == "rules" and brief.previous is not None and _is_slow(brief):
        from kernellab.session.turn.tuned import faster_design

        return faster_design(bench, designer, brief, channel)
    if spec == "rules" and brief.previous is None and not brief.pins and bench.recall() is not None:
        replies = designer.designs(brief)
        chosen, reminders_used = begun(replies, starts(bench, replies))
        remembered(reminders_used)
        return chosen
    reply: DesignReply | Route = designer.design(brief)
    return reply


def _is_slow(brief: DesignBrief) -> bool:
    """Whether the work returned because the kernel is slower than eager, not because there is headroom."""
    last = brief.history[-1].verdict if brief.history else None
    for_speed = brief.route is not None and brief.route.error_class == ErrorClass.PERFORMANCE
    return for_speed and not brief.pins and is_slow(last)


def _gate(
    turn: Turn, before: str | None, kept: Kept, task: Task, target: Target, values: dict[str, int | float]
) -> GateResult:
    from kernellab.sketch.gate import gate

    assert turn.sketch is not None
    refused = _refused(before, kept, turn) if before is not None else None
    if refused is not None:
        return refused
    try:
        return gate(turn.sketch, task, chip=target.chip, constexpr=values)
    except SketchError as error:
        diagnostics = list(error.diagnostics) or [Diagnostic(line=1, col=1, code="SK000", message=str(error))]
        return GateResult(state=GateState.NOT_RUNNABLE, reason=error.message, diagnostics=diagnostics)


def repinned(turn: Turn, state: State) -> Turn:
    """Check a finished turn against pins that were set while it ran: a sketch that breaks them is refused."""
    now = held(state, turn.parent)
    if turn.role is not Role.DESIGNER or turn.sketch is None or now.turn is None:
        return turn
    refused = _refused(now.sketch, now.kept, turn)
    return turn.model_copy(update={"gate": refused}) if refused else turn


def _refused(before: str, kept: Kept, turn: Turn) -> GateResult | None:
    """Return the gate's result if a revision changes a person's pin or constraint, else None."""
    breaches: list[Diagnostic] = list(check_pins(before, turn.sketch or "", turn.author, kept))
    if not any(b.severity == "error" for b in breaches):
        return None
    return GateResult(state=GateState.WRONG, reason=breaches[0].message, diagnostics=breaches)


def _code(bench: Bench, state: State, turn: Turn, channel: Channel) -> Turn:
    brief = code_brief(bench, state, turn.parent)
    candidate_before = state.candidate(turn.parent) if turn.parent else None
    spec = state.roles[Role.CODER]
    brief = reminded(bench, brief) if spec != "rules" else brief
    rules_first = is_model(spec) and not bench.by_agent(Role.CODER, spec, channel)
    lowered = unverified_lowering(state, brief) if rules_first else None
    if lowered is not None:
        outcome = Played[CodeReply | Route](lowered, Author.RULES)
    else:
        channel = replace(channel, source=base_of(brief, Options()).source if is_model(spec) else None)
        outcome = first_answer(spec, lambda player: bench.role(Role.CODER, player, channel).code(brief))
    reply = outcome.answer
    if isinstance(reply, Route):
        return _ended(bench, state, turn, reply)
    author = outcome.author or turn.author
    candidate = Candidate(
        id=f"c{turn.number}",
        source=reply.source,
        sketch=brief.sketch or None,
        constexpr=dict(reply.constexpr) or dict(brief.constexpr),
        parent=candidate_before.id if candidate_before else None,
        author=author,
    )
    update = {
        "rationale": f"{outcome.note}{reply.rationale}",
        "claims": tuple(reply.claims),
        "passed_over": outcome.passed_over,
    }
    reminders_used = () if lowered is not None else reminders(brief.recalled)
    return turn.model_copy(update={"candidate": candidate, "author": author, "remembered": reminders_used, **update})


def _conduct(bench: Bench, state: State, turn: Turn, channel: Channel) -> Turn:
    brief = route_brief(bench, state, turn.parent)
    spec = state.roles[Role.CONDUCTOR]
    if spec == "rules" and brief.verdict is not None and brief.verdict.hot is not None:
        channel.say("finding the lines that take the time")  # compiling takes seconds
    outcome = first_answer(spec, lambda player: bench.role(Role.CONDUCTOR, player, channel).route(brief))
    route = outcome.answer.model_copy(update={"reason": f"{outcome.note}{outcome.answer.reason}"})
    update = {"author": outcome.author or turn.author, "passed_over": outcome.passed_over}
    return turn.model_copy(update={"route": route, "rationale": route.reason, **update})


def _analyse(bench: Bench, state: State, turn: Turn, channel: Channel) -> Turn:
    brief = analyse_brief(bench, state, turn.parent, turn.note)
    spec = state.roles.get(Role.ANALYST, "rules")
    outcome = first_answer(spec, lambda player: bench.role(Role.ANALYST, player, channel).analyse(brief))
    reply = outcome.answer
    update = {
        "rationale": f"{outcome.note}{reply.text}", "claims": tuple(reply.claims), "passed_over": outcome.passed_over
    }  # fmt: skip
    return turn.model_copy(update={**update, "author": outcome.author or turn.author})


_WORK: Mapping[Role, Callable[[Bench, State, Turn, Channel], Turn]] = {
    Role.DESIGNER: _design,
    Role.CODER: _code,
    Role.VERIFIER: verified,
    Role.CONDUCTOR: _conduct,
    Role.ANALYST: _analyse,
}


def author_of(bench: Bench, state: State, role: Role) -> Author:
    """The author of a turn of ``role``; an object states its author."""
    spec = state.roles.get(role, "rules")
    if role is Role.VERIFIER:
        return Author.RULES
    if spec.startswith("object:"):
        return Author(bench.role(role, spec, Channel()).author)
    return Author.MODEL if is_model(spec) else Author(spec)


def _findings(error: KernellabError) -> dict[str, Any]:
    if isinstance(error, SketchError) and error.diagnostics:
        lines = "\n".join(f"line {d.line}: {d.message} {d.remedy}".rstrip() for d in error.diagnostics)
        return {"note": lines}
    return {}


def _debug(error: Exception) -> None:
    import logging
    import os

    if os.environ.get("KERNELLAB_DEBUG"):
        logging.getLogger("kernellab.session").error("a role broke", exc_info=error)
