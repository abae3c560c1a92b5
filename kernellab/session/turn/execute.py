"""A turn's work, and the record of its role's answer. Blocking; runs in worker threads.

:func:`perform` does the work of any role (``_WORK``) and turns every error into a FAILED turn. The Designer's turn is
:mod:`kernellab.session.turn.designing`, the Verifier's :mod:`kernellab.session.turn.verifying`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from kernellab.agents.briefs import CodeReply
from kernellab.agents.model.options import Options
from kernellab.agents.model.prompts.code_base import base_of
from kernellab.agents.roles import is_model
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
    Role,
    Route,
)
from kernellab.session.engine.engine import engine
from kernellab.session.record.records import Turn, TurnState
from kernellab.session.record.state import State
from kernellab.session.turn.briefing import analyse_brief, code_brief, route_brief
from kernellab.session.turn.claims import checked
from kernellab.session.turn.context import Bench, Channel
from kernellab.session.turn.designing import breaches_of_replies, design
from kernellab.session.turn.fallback import Played, first_answer, unverified_lowering
from kernellab.session.turn.finishing import finished
from kernellab.session.turn.quoting import quoted
from kernellab.session.turn.recalling import learn, reminded, reminders
from kernellab.session.turn.verifying import verified
from kernellab.verifier.judge import turns

#: Errors whose line numbers refer to the task.
_ABOUT_THE_TASK = (CaptureError, DesignError)


def perform(bench: Bench, state: State, turn: Turn, channel: Channel) -> Turn:
    """Do ``turn``'s work and return its finished record. A role's failure is a FAILED turn, not an exception.

    Raises:
        TaskError, TargetError: the session cannot continue.
    """
    began = time.perf_counter()
    # what no role can fix ends the session, so it is raised before any work
    bench.task(), bench.target(), bench.admitted()
    exchanges = list(channel.answered)
    channel = replace(channel, record=_both(exchanges.append, channel.record))
    try:
        done = _worked(bench, state, turn, channel)
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
        done = done.model_copy(update={"refused": breaches_of_replies(state, turn.parent, exchanges)})
    if done.state is TurnState.RUNNING:
        done = done.model_copy(update={"state": TurnState.DONE, "checks": checked(bench, state, done)})
    return done.model_copy(update={"seconds": seconds})


def _worked(bench: Bench, state: State, turn: Turn, channel: Channel) -> Turn:
    """The turn with its role's answer, still RUNNING, or FAILED."""
    try:
        if turn.role is Role.VERIFIER:  # the judge manages its own turns
            return verified(bench, state, turn, channel)
        with turns.working(designing=True):
            return _WORK[turn.role](bench, state, turn, channel)
    except KernellabError as error:
        failed = failed_turn(turn, error)
        if isinstance(error, _ABOUT_THE_TASK):
            failed = failed.model_copy(update={"error": quoted(error.message, bench.created.text)})
        return failed
    except Exception as error:
        if turn.role is Role.VERIFIER:
            engine().drop_verifier()
        _debug(error)
        return turn.model_copy(
            update={
                "state": TurnState.FAILED,
                "error": f"The {turn.role.value} failed: {type(error).__name__}: {error}",
                "remedy": "Set KERNELLAB_DEBUG=1 for the traceback, and report it.",
                "fault": type(error).__name__,
            }
        )


def failed_turn(turn: Turn, error: KernellabError) -> Turn:
    """Return ``turn`` as it failed with ``error``."""
    update = {
        "state": TurnState.FAILED,
        "error": error.message,
        "remedy": error.remedy,
        "fault": f"model:{error.kind.value}" if isinstance(error, ModelError) else type(error).__name__,
    }
    if isinstance(error, SketchError) and error.diagnostics:
        update["note"] = "\n".join(f"line {d.line}: {d.message} {d.remedy}".rstrip() for d in error.diagnostics)
    return turn.model_copy(update=update)


def _both(first: Callable[[Exchange], None], second: Callable[[Exchange], None]) -> Callable[[Exchange], None]:
    def record(exchange: Exchange) -> None:
        first(exchange)
        second(exchange)

    return record


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
        return finished(bench, state, turn, reply)
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
    Role.DESIGNER: design,
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


def _debug(error: Exception) -> None:
    import logging
    import os

    if os.environ.get("KERNELLAB_DEBUG"):
        logging.getLogger("kernellab.session").error("a role broke", exc_info=error)
