"""A turn's work, and the record of what its role answered. Blocking; runs in worker threads."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kernellab.agents.briefs import DesignBrief, DesignReply
from kernellab.agents.roles import is_model
from kernellab.errors import KernellabError, ModelError, SessionError, SketchError, VerifierError
from kernellab.records import Author, Candidate, Diagnostic, Exchange, GateResult, GateState, Role, Source, Verdict
from kernellab.session.bench import Bench, Channel
from kernellab.session.briefing import analyse_brief, code_brief, design_brief, route_brief
from kernellab.session.claims import checked
from kernellab.session.engine import engine
from kernellab.session.records import Turn, TurnState
from kernellab.session.state import State
from kernellab.verifier import turns

if TYPE_CHECKING:
    from kernellab.target import Target
    from kernellab.task import Task

#: how long a baseline may compile in the background, and how often that is looked at
_COMPILE_SECONDS = 300.0
_LOOK_SECONDS = 0.4


def perform(bench: Bench, state: State, turn: Turn, channel: Channel) -> Turn:
    """Do ``turn``'s work and return its finished record. What the role cannot do is a FAILED turn, not an exception.

    Raises:
        TaskError, TargetError: the session itself cannot go on.
    """
    bench.task(), bench.target(), bench.admitted()
    began = time.perf_counter()
    heard = list(channel.answered)
    channel = replace(channel, record=_both(heard.append, channel.record))
    try:
        if turn.role is Role.VERIFIER:  # the judge takes its turns itself
            done = _verify(bench, state, turn, channel)
        else:
            with turns.working(designing=True):
                done = _WORK[turn.role](bench, state, turn, channel)
    except KernellabError as error:
        failed = {"state": TurnState.FAILED, "error": error.message, "remedy": error.remedy, "fault": fault_of(error)}
        done = turn.model_copy(update=failed | _findings(error))
    except Exception as error:
        if turn.role is Role.VERIFIER:
            engine().drop_verifier()
        done = turn.model_copy(
            update={
                "state": TurnState.FAILED,
                "error": f"The {turn.role.value} broke: {type(error).__name__}: {error}",
                "remedy": "Set KERNELLAB_DEBUG=1 for the traceback, and report it.",
                "fault": type(error).__name__,
            }
        )
        _debug(error)
    seconds = time.perf_counter() - began
    if turn.role is Role.DESIGNER and heard and turn.parent:
        done = done.model_copy(update={"refused": _refused_replies(state, turn.parent, heard)})
    if done.state is TurnState.RUNNING:
        done = done.model_copy(update={"state": TurnState.DONE, "checks": checked(bench, state, done)})
    return done.model_copy(update={"seconds": seconds})


def _both(first: Callable[[Exchange], None], second: Callable[[Exchange], None]) -> Callable[[Exchange], None]:
    def record(exchange: Exchange) -> None:
        first(exchange)
        second(exchange)

    return record


def _refused_replies(state: State, parent: str, heard: Iterable[Exchange]) -> tuple[str, ...]:
    """What a Designer's replies broke of the pins and constraints, reply by reply; none of them became its sketch."""
    from kernellab.agents.model.replies import AnswerError, parse_sketch
    from kernellab.sketch.pins import check_pins

    designed = state.sketch_turn(parent)
    found: list[str] = []
    for exchange in heard:
        try:
            revision = parse_sketch(exchange.reply).sketch
        except AnswerError:
            continue
        breaches = check_pins(designed.sketch or "", revision, Author.MODEL) if designed else []
        found += [f"line {d.line}: {d.message}" for d in breaches if d.severity == "error"]
    return tuple(found)


def fault_of(error: KernellabError) -> str:
    """A word for the kind of error, as :attr:`Turn.fault` keeps it."""
    return f"model:{error.kind.value}" if isinstance(error, ModelError) else type(error).__name__


def _design(bench: Bench, state: State, turn: Turn, channel: Channel) -> Turn:
    brief = design_brief(bench, state, turn.parent)
    if turn.sketch is None:
        reply = _designed(bench, state.roles[Role.DESIGNER], brief, channel)
        turn = turn.model_copy(
            update={
                "sketch": reply.sketch,
                "constexpr": dict(reply.constexpr),
                "rationale": reply.rationale,
                "claims": tuple(reply.claims),
            }
        )
    if "gate" in bench.created.ablation:
        return turn
    values = {**turn.constexpr, **bench.created.constexpr}
    return turn.model_copy(update={"gate": _gate(turn, brief.previous, brief.task, brief.target, values)})


def _designed(bench: Bench, spec: str, brief: DesignBrief, channel: Channel) -> DesignReply:
    source = bench.created.start_source
    if bench.created.lift and source is not None and brief.previous is None and is_model(spec):
        from kernellab.agents.model import lift

        talk = bench.talk(Role.DESIGNER, spec, channel)
        return lift(source, brief.task, brief.target, talk, bench.knowledge())
    designer = bench.role(Role.DESIGNER, spec, channel)
    if (bench.created.tune or brief.allow_library) and spec == "rules" and brief.previous is None:
        from kernellab.session.tuned import tuned_design

        return tuned_design(bench, designer, brief, channel)
    reply: DesignReply = designer.design(brief)
    return reply


def _gate(turn: Turn, before: str | None, task: Task, target: Target, values: dict[str, int | float]) -> GateResult:
    from kernellab.sketch.gate import gate

    assert turn.sketch is not None
    refused = _refused(before, turn) if before is not None else None
    if refused is not None:
        return refused
    try:
        return gate(turn.sketch, task, chip=target.chip, constexpr=values)
    except SketchError as error:
        found = list(error.diagnostics) or [Diagnostic(line=1, col=1, code="SK000", message=str(error))]
        return GateResult(state=GateState.NOT_RUNNABLE, reason=error.message, diagnostics=found)


def repinned(turn: Turn, state: State) -> Turn:
    """A finished turn that pins were set beneath while it worked: a sketch that breaks them is refused."""
    designed = state.sketch_turn(turn.parent) if turn.parent else None
    if turn.role is not Role.DESIGNER or turn.sketch is None or designed is None or designed.sketch is None:
        return turn
    refused = _refused(designed.sketch, turn)
    return turn.model_copy(update={"gate": refused}) if refused else turn


def _refused(before: str, turn: Turn) -> GateResult | None:
    """The gate's answer to a revision that changes a pinned line or a constraint of a person; None when it is kept."""
    from kernellab.sketch.pins import check_pins

    breaches: list[Diagnostic] = list(check_pins(before, turn.sketch or "", turn.author))
    if not any(b.severity == "error" for b in breaches):
        return None
    return GateResult(state=GateState.WRONG, reason=breaches[0].message, diagnostics=breaches)


def _code(bench: Bench, state: State, turn: Turn, channel: Channel) -> Turn:
    brief = code_brief(bench, state, turn.parent)
    earlier = state.candidate(turn.parent) if turn.parent else None
    reply = bench.role(Role.CODER, state.roles[Role.CODER], channel).code(brief)
    candidate = Candidate(
        id=f"c{turn.number}",
        source=reply.source,
        sketch=brief.sketch or None,
        constexpr=dict(reply.constexpr) or dict(brief.constexpr),
        parent=earlier.id if earlier else None,
        author=turn.author,
    )
    return turn.model_copy(update={"candidate": candidate, "rationale": reply.rationale, "claims": tuple(reply.claims)})


def _verify(bench: Bench, state: State, turn: Turn, channel: Channel) -> Turn:
    task, target = bench.task(), bench.target()
    candidate = state.candidate(turn.parent)
    assert candidate is not None
    earlier = state.verdict_of(candidate.source.hash)
    if earlier is not None:
        return turn.model_copy(update={"verdict": earlier.verdict, "reused": earlier.id})
    with engine().verifying:
        began = time.perf_counter()
        try:
            verdict = (
                engine()
                .verifier()
                .verify(task, candidate.source, target, options=bench.options(), progress=channel.progress)
            )
        except VerifierError:
            engine().drop_verifier()
            raise
        finally:
            if target.chip.kind == "gpu":
                bench.budget.spend(gpu_s=time.perf_counter() - began)
    return turn.model_copy(update={"verdict": _with_task_flags(bench, verdict)})


def compare(bench: Bench, source: Source, baselines: tuple[str, ...]) -> Verdict:
    """A verdict on a source that has passed, timed against ``baselines`` in one paired run. Blocking.

    Raises:
        VerifierError, SessionError: it could not be judged, or there is no such baseline.
    """
    from pydantic import ValidationError

    from kernellab.verifier.options import VerifyOptions

    try:
        options = VerifyOptions.model_validate({**bench.created.options, "baselines": baselines})
    except ValidationError:
        raise SessionError(
            f"{', '.join(baselines)} cannot all be compared with.", "There is eager and compile."
        ) from None
    task, target = bench.task(), bench.target()
    until = time.monotonic() + _COMPILE_SECONDS
    # torch.compile takes many seconds: it must not keep another verification from the judge
    while not engine().verifier().prepare(task, target, options) and time.monotonic() < until:
        time.sleep(_LOOK_SECONDS)
    with engine().verifying:
        return _with_task_flags(bench, engine().verifier().verify(task, source, target, options=options))


def _with_task_flags(bench: Bench, verdict: Verdict) -> Verdict:
    """A verdict is worth what its task is: what weak tests it had stands beside it."""
    return verdict.model_copy(update={"flags": [*verdict.flags, *map(str, bench.admitted())]})


def _conduct(bench: Bench, state: State, turn: Turn, channel: Channel) -> Turn:
    brief = route_brief(bench, state, turn.parent)
    route = bench.role(Role.CONDUCTOR, state.roles[Role.CONDUCTOR], channel).route(brief)
    return turn.model_copy(update={"route": route, "rationale": route.reason})


def _analyse(bench: Bench, state: State, turn: Turn, channel: Channel) -> Turn:
    brief = analyse_brief(bench, state, turn.parent, turn.note)
    reply = bench.role(Role.ANALYST, state.roles.get(Role.ANALYST, "rules"), channel).analyse(brief)
    return turn.model_copy(update={"rationale": reply.text, "claims": tuple(reply.claims)})


_WORK: Mapping[Role, Callable[[Bench, State, Turn, Channel], Turn]] = {
    Role.DESIGNER: _design,
    Role.CODER: _code,
    Role.VERIFIER: _verify,
    Role.CONDUCTOR: _conduct,
    Role.ANALYST: _analyse,
}


def author_of(bench: Bench, state: State, role: Role) -> Author:
    """Who takes a turn of ``role``; an object says it itself."""
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
