"""A turn's work, and the record of what its role answered. Blocking; runs in worker threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kernellab.agents.briefs import CodeReply, DesignBrief, DesignReply, unsure
from kernellab.agents.model.options import Options
from kernellab.agents.model.prompts.code import base_of
from kernellab.agents.roles import is_model
from kernellab.agents.rules.advice import advise, route_facts
from kernellab.agents.rules.classify import ErrorClass
from kernellab.agents.rules.performance import slow_because, starting
from kernellab.agents.rules.slow import is_slow
from kernellab.conditions import Mark, joined
from kernellab.errors import (
    CaptureError,
    DesignError,
    KernellabError,
    ModelError,
    SessionError,
    SketchError,
    VerifierError,
)
from kernellab.models.exchanges import Exchange
from kernellab.records import (
    Author,
    Candidate,
    Comparison,
    Diagnostic,
    GateResult,
    GateState,
    Ranking,
    Role,
    Route,
    RouteKind,
    Source,
    Verdict,
)
from kernellab.session.engine.engine import engine
from kernellab.session.record.records import Reminder, Turn, TurnState
from kernellab.session.record.state import State
from kernellab.session.turn.briefing import analyse_brief, code_brief, design_brief, improvers, improves, route_brief
from kernellab.session.turn.claims import checked
from kernellab.session.turn.context import Bench, Channel
from kernellab.session.turn.fallback import Played, first_answer, unverified_lowering
from kernellab.session.turn.quoting import quoted
from kernellab.session.turn.recalling import begun, learn, reminded, reminders, starts
from kernellab.session.turn.refuting import counterexamples, refuted
from kernellab.sketch.syntax.pins import check_pins
from kernellab.verifier.judge import turns

if TYPE_CHECKING:
    from kernellab.target import Target
    from kernellab.task import Task
    from kernellab.verifier.protocol.options import VerifyOptions

#: errors whose lines are those of the task
_ABOUT_THE_TASK = (CaptureError, DesignError)
#: how long a baseline may compile in the background, and how often that is looked at
_COMPILE_SECONDS = 300.0
_LOOK_SECONDS = 0.4


def perform(bench: Bench, state: State, turn: Turn, channel: Channel) -> Turn:
    """Do ``turn``'s work and return its finished record. What the role cannot do is a FAILED turn, not an exception.

    Raises:
        TaskError, TargetError: the session itself cannot go on.
    """
    began = time.perf_counter()
    bench.task(), bench.target(), bench.admitted()
    heard = list(channel.answered)
    channel = replace(channel, record=_both(heard.append, channel.record))
    try:
        if turn.role is Role.VERIFIER:  # the judge takes its turns itself
            done = _verify(bench, state, turn, channel)
        else:
            with turns.working(designing=True):
                done = _WORK[turn.role](bench, state, turn, channel)
    except KernellabError as error:
        said = quoted(error.message, bench.created.text) if isinstance(error, _ABOUT_THE_TASK) else error.message
        failed = {"state": TurnState.FAILED, "error": said, "remedy": error.remedy, "fault": fault_of(error)}
        done = turn.model_copy(update=failed | _findings(error))
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
    if done.role is Role.CONDUCTOR and done.author is Author.MODEL and not heard:
        # the evidence alone decided
        done = done.model_copy(update={"author": Author.RULES})
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
    from kernellab.agents.model.reply.reading import AnswerError, parse_sketch

    designed = state.sketch_turn(parent)
    found: list[str] = []
    for exchange in heard:
        try:
            revision = parse_sketch(exchange.reply, designed.sketch if designed else None).sketch
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
        spec, taken = state.roles[Role.DESIGNER], list[Reminder]()
        brief = reminded(bench, brief) if spec != "rules" else brief
        played = first_answer(spec, lambda player: _designed(bench, player, brief, channel, taken.extend))
        reply = played.answer
        if isinstance(reply, Route):
            return _ended(bench, state, turn, reply)
        turn = turn.model_copy(
            update={
                "remembered": (*reminders(brief.recalled), *taken),
                "author": played.author or turn.author,
                "sketch": reply.sketch,
                "constexpr": dict(reply.constexpr),
                "rationale": f"{played.note}{reply.rationale}",
                "passed_over": played.passed_over,
                "claims": tuple(reply.claims),
                "library_calls": reply.library_calls,
                "rewritten": reply.rewritten,
            }
        )
    if "gate" in bench.created.ablation:
        return turn
    values = {**turn.constexpr, **bench.created.constexpr}
    return turn.model_copy(update={"gate": _gate(turn, brief.previous, brief.task, brief.target, values)})


def _ended(bench: Bench, state: State, turn: Turn, route: Route) -> Turn:
    """A turn in which the role said that the work is done; an improver that was not asked yet is asked first."""
    heads = ((other, state.standing(other.parent)) for other in state.turns.values() if other.parent)
    asked = {other.role for other, head in heads if head is not None and head.route is not None} | {turn.role}
    left = [role for role in (Role.DESIGNER, Role.CODER) if role in improvers(state) and role not in asked]
    if left and improves(state):
        why = (
            f"The {turn.role.value} knows nothing faster: {route.reason.rstrip('.')}. The {left[0].value} was not "
            "asked for something faster yet."
        )
        judged = next((t.id for t in state.up(turn.parent) if t.verdict is not None), turn.parent)
        to = RouteKind(left[0].value)
        start, of_earlier = starting(route_brief(bench, state, judged), to)
        right = start.verdict is not None and start.verdict.passed
        suggestion, facts = slow_because(start, to) if right else (advise(start, to), [])
        route = Route(
            to=to, error_class=ErrorClass.PERFORMANCE.value, reason=why, suggestion=f"{of_earlier}{suggestion}",
            facts=(*route_facts(start), *facts),
        )  # fmt: skip
    return turn.model_copy(update={"route": route, "rationale": route.reason})


def _designed(
    bench: Bench, spec: str, brief: DesignBrief, channel: Channel, remembered: Callable[[Iterable[Reminder]], None]
) -> DesignReply | Route:
    source = bench.created.start_source
    if bench.created.lift and source is not None and brief.previous is None and is_model(spec):
        from kernellab.agents.model import lift

        talk = bench.talk(Role.DESIGNER, spec, channel)
        return lift(source, brief.task, brief.target, talk, bench.knowledge())
    designer = bench.role(Role.DESIGNER, spec, channel)
    if (bench.created.tune or brief.allow_library) and spec == "rules" and brief.previous is None:
        from kernellab.session.turn.tuned import tuned_design

        return tuned_design(bench, designer, brief, channel, remembered)
    if spec == "rules" and brief.previous is not None and _is_slow(brief):
        from kernellab.session.turn.tuned import faster_design

        return faster_design(bench, designer, brief, channel)
    if spec == "rules" and brief.previous is None and not brief.pins and bench.recall() is not None:
        replies = designer.designs(brief)
        chosen, told = begun(replies, starts(bench, replies))
        remembered(told)
        return chosen
    reply: DesignReply | Route = designer.design(brief)
    return reply


def _is_slow(brief: DesignBrief) -> bool:
    """Was it sent back for a kernel that is certainly slower, rather than for a faster one where there is headroom?"""
    last = brief.history[-1].verdict if brief.history else None
    asked = brief.route is not None and brief.route.error_class == ErrorClass.PERFORMANCE
    return asked and not brief.pins and is_slow(last)


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
    breaches: list[Diagnostic] = list(check_pins(before, turn.sketch or "", turn.author))
    if not any(b.severity == "error" for b in breaches):
        return None
    return GateResult(state=GateState.WRONG, reason=breaches[0].message, diagnostics=breaches)


def _code(bench: Bench, state: State, turn: Turn, channel: Channel) -> Turn:
    brief = code_brief(bench, state, turn.parent)
    earlier = state.candidate(turn.parent) if turn.parent else None
    spec = state.roles[Role.CODER]
    brief = reminded(bench, brief) if spec != "rules" else brief
    rules_first = is_model(spec) and not bench.by_agent(Role.CODER, spec, channel)
    lowered = unverified_lowering(state, brief) if rules_first else None
    if lowered is not None:
        played = Played[CodeReply | Route](lowered, Author.RULES)
    else:
        channel = replace(channel, source=base_of(brief, Options()).source if is_model(spec) else None)
        played = first_answer(spec, lambda player: bench.role(Role.CODER, player, channel).code(brief))
    reply = played.answer
    if isinstance(reply, Route):
        return _ended(bench, state, turn, reply)
    author = played.author or turn.author
    candidate = Candidate(
        id=f"c{turn.number}",
        source=reply.source,
        sketch=brief.sketch or None,
        constexpr=dict(reply.constexpr) or dict(brief.constexpr),
        parent=earlier.id if earlier else None,
        author=author,
    )
    said = {
        "rationale": f"{played.note}{reply.rationale}", "claims": tuple(reply.claims), "passed_over": played.passed_over
    }  # fmt: skip
    told = () if lowered is not None else reminders(brief.recalled)
    return turn.model_copy(update={"candidate": candidate, "author": author, "remembered": told, **said})


def _verify(bench: Bench, state: State, turn: Turn, channel: Channel) -> Turn:
    task, target = bench.task(), bench.target()
    candidate = state.candidate(turn.parent)
    assert candidate is not None
    earlier = state.verdict_of(candidate.source.hash)
    if earlier is not None:
        return turn.model_copy(update={"verdict": earlier.verdict, "reused": earlier.id})
    options = options_of(bench, state, candidate)
    with engine().verifying:
        _refuse_stopped(channel.cancel)
        began = time.perf_counter()
        try:
            verdict = engine().verifier().verify(
                task, candidate.source, target,
                options=options.model_copy(update={"counterexamples": counterexamples(task, state)}),
                progress=channel.progress, cancel=channel.cancel,
            )  # fmt: skip
            verdict, uncounted = _with_counters(bench, candidate.source, verdict)
        finally:
            if target.chip.kind == "gpu":
                bench.budget.spend(gpu_s=time.perf_counter() - began)
    verdict = _with_task_flags(bench, verdict)
    turn = turn.model_copy(
        update={
            "next_to_best": _next_to_best(bench, state, candidate.source, verdict, channel.cancel),
            "refuted": _refuted(bench, state, turn, verdict, channel.cancel),
        }
    )
    played = (said for above in state.up(turn.parent) for said in state.exchanges(above.id))
    if engine().agent_near or any(said.shared_machine for said in played):
        verdict = verdict.model_copy(
            update={"conditions": joined(verdict.conditions, [Mark(kind="agent-shared-machine")])}
        )
    return turn.model_copy(update={"verdict": verdict, "rationale": uncounted or turn.rationale})


def _refuse_stopped(cancel: threading.Event | None) -> None:
    """
    Raises:
        VerifierError: the work was stopped while it waited; a request would end the judge that all sessions share.
    """
    if cancel is not None and cancel.is_set():
        raise VerifierError("The verification was stopped.", "There is no verdict; verify again.")


def _next_to_best(
    bench: Bench, state: State, source: Source, verdict: Verdict, cancel: threading.Event
) -> tuple[str, Comparison] | None:
    """A kernel timed in one run with the best one until then, where it is ``unsure`` which is better; None elsewhere,
    and where that run gives nothing."""
    best = state.best()
    if best is None or not unsure(best.verdict, verdict):
        return None
    name, began = f"turn {best.number}", time.perf_counter()
    try:
        found = compare(bench, source, ("eager",), {name: best.candidate.source}, cancel=cancel).against(name)
    except (VerifierError, SessionError):
        return None  # both have their verdicts
    finally:
        if bench.target().chip.kind == "gpu":
            bench.budget.spend(gpu_s=time.perf_counter() - began)
    return (best.turn.id, found) if found is not None else None


def _refuted(
    bench: Bench, state: State, turn: Turn, verdict: Verdict, cancel: threading.Event
) -> tuple[str, Verdict] | None:
    best, wrote = state.best(), state.source_turn(turn.parent)
    if best is None or wrote is None:
        return None
    return refuted(bench, best, verdict, wrote.number, options_of(bench, state, best.candidate), cancel)


def _with_counters(bench: Bench, source: Source, verdict: Verdict) -> tuple[Verdict, str]:
    """A verdict with the GPU's counters of a kernel that passed T2, where the session allows that; else why not."""
    if not (bench.created.counters and bench.target().chip.kind == "gpu" and verdict.passed and verdict.time):
        return verdict, ""
    from kernellab.lens.counters.read import count

    try:
        counted = count(source, bench.task(), unsandboxed=bench.created.counters)
    except SessionError as error:
        return verdict, f"No counters of the GPU were read: {error.message} {error.remedy}".strip()
    return verdict.model_copy(update={"counters": counted}), ""


def options_of(bench: Bench, state: State, candidate: Candidate) -> VerifyOptions:
    """What was asked for; a kernel of the rules may call the framework for what no rule designs, and is labelled so."""
    asked: VerifyOptions = bench.options()
    if candidate.source.origin is not Author.RULES:
        return asked
    turns = (t for t in state.turns.values() if t.role is Role.DESIGNER and t.author is Author.RULES)
    designs = [t for t in turns if t.sketch == candidate.sketch]
    allowed = asked.allow_library or any(t.library_calls for t in designs)
    return asked.model_copy(update={"rewritten": any(t.rewritten for t in designs), "allow_library": allowed})


def compare(
    bench: Bench, source: Source, baselines: tuple[str, ...], rivals: Mapping[str, Source] | None = None,
    task: Task | None = None, cancel: threading.Event | None = None,
) -> Verdict:  # fmt: skip
    """A verdict on a source that has passed, timed against ``baselines`` and other kernels in one paired run, for the
    session's task or for ``task``: the same one at other sizes. Blocking.

    Raises:
        VerifierError, SessionError: it could not be judged, ``cancel`` was set, or there is no such baseline.
    """
    from pydantic import ValidationError

    from kernellab.verifier.protocol.options import VerifyOptions

    try:
        asked = {**bench.created.options, "baselines": baselines, "rivals": dict(rivals or {})}
        options = VerifyOptions.model_validate(asked)
    except ValidationError:
        raise SessionError(f"{', '.join(baselines)} cannot all be compared with.", "Choose eager or compile.") from None
    task, target = task or bench.task(), bench.target()
    until = time.monotonic() + _COMPILE_SECONDS
    # torch.compile takes many seconds: it must not keep another verification from the judge
    while not engine().verifier().prepare(task, target, options) and time.monotonic() < until:
        if cancel is not None and cancel.is_set():
            break
        time.sleep(_LOOK_SECONDS)
    with engine().verifying:
        _refuse_stopped(cancel)
        return _with_task_flags(bench, engine().verifier().verify(task, source, target, options=options, cancel=cancel))


def rank(bench: Bench, source: Source, task: Task | None = None) -> Ranking:
    """What a search receives of a source for the session's task, or for ``task``: the same one at other sizes.
    Blocking. Raises VerifierError, TargetError."""
    from kernellab.verifier.protocol.options import RankOptions, VerifyOptions

    asked = VerifyOptions.model_validate(bench.created.options)
    options = RankOptions(
        allow_library=asked.allow_library, unsandboxed=asked.unsandboxed, threads=asked.threads,
        precision=asked.precision,
    )  # fmt: skip
    with engine().verifying:
        return engine().verifier().rank(task or bench.task(), source, bench.target(), options=options)


def _with_task_flags(bench: Bench, verdict: Verdict) -> Verdict:
    """A verdict is worth what its task is: what weak tests it had stands next to it, and what its reference runs in."""
    from kernellab.task.audit import weaknesses

    numpy = bench.task().framework == "numpy"
    named = {"called": "NumPy"} if numpy else {}
    comparisons = [c.model_copy(update=named) if c.baseline == "eager" else c for c in verdict.comparisons]
    conditions = joined(verdict.conditions, weaknesses(bench.admitted()))
    return verdict.model_copy(update={"conditions": conditions, "comparisons": comparisons})


def _conduct(bench: Bench, state: State, turn: Turn, channel: Channel) -> Turn:
    brief = route_brief(bench, state, turn.parent)
    spec = state.roles[Role.CONDUCTOR]
    if spec == "rules" and brief.verdict is not None and brief.verdict.hot is not None:
        channel.say("finding the lines that take the time")  # a compiler's seconds
    played = first_answer(spec, lambda player: bench.role(Role.CONDUCTOR, player, channel).route(brief))
    route = played.answer.model_copy(update={"reason": f"{played.note}{played.answer.reason}"})
    who = {"author": played.author or turn.author, "passed_over": played.passed_over}
    return turn.model_copy(update={"route": route, "rationale": route.reason, **who})


def _analyse(bench: Bench, state: State, turn: Turn, channel: Channel) -> Turn:
    brief = analyse_brief(bench, state, turn.parent, turn.note)
    spec = state.roles.get(Role.ANALYST, "rules")
    played = first_answer(spec, lambda player: bench.role(Role.ANALYST, player, channel).analyse(brief))
    reply = played.answer
    said = {
        "rationale": f"{played.note}{reply.text}", "claims": tuple(reply.claims), "passed_over": played.passed_over
    }  # fmt: skip
    return turn.model_copy(update={**said, "author": played.author or turn.author})


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
