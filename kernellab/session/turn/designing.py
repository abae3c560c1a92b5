"""The Designer's turn: who makes the sketch and how, and the gate that checks it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from kernellab.agents.briefs import DesignBrief
from kernellab.agents.roles import is_model
from kernellab.agents.rules.classify import ErrorClass
from kernellab.agents.rules.slow import is_slow
from kernellab.errors import SketchError
from kernellab.models.exchanges import Exchange
from kernellab.records import Author, Diagnostic, GateResult, GateState, Role, Route
from kernellab.session.record.obligations import obligations_at
from kernellab.session.record.records import Turn
from kernellab.session.record.state import State
from kernellab.session.turn.briefing import design_brief
from kernellab.session.turn.context import Bench, Channel
from kernellab.session.turn.fallback import first_answer
from kernellab.session.turn.finishing import finished
from kernellab.session.turn.recalling import StartedDesign, from_nearest, reminded, reminders, starts
from kernellab.sketch.syntax.pins import Kept, check_pins

if TYPE_CHECKING:
    from kernellab.agents.rules.designer import RulesDesigner


def design(bench: Bench, state: State, turn: Turn, channel: Channel) -> Turn:
    """Return the turn with a sketch and its gate's result, or with the route of a Designer that is done."""
    brief = design_brief(bench, state, turn.parent)
    if turn.sketch is None:
        spec = state.roles[Role.DESIGNER]
        brief = reminded(bench, brief) if spec != "rules" else brief
        outcome = first_answer(spec, lambda player: _designed(bench, player, brief, channel))
        reply = outcome.answer.reply
        if isinstance(reply, Route):
            return finished(bench, state, turn, reply)
        turn = turn.model_copy(
            update={
                "remembered": (*reminders(brief.recalled), *outcome.answer.reminders),
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
    return turn.model_copy(update={"gate": _gate(bench, turn, brief)})


# -- who makes the sketch, and how -------------------------------------------------------------------------------------


def _designed(bench: Bench, spec: str, brief: DesignBrief, channel: Channel) -> StartedDesign:
    """The sketch by the player ``spec``."""
    source = bench.created.start_source
    if bench.created.lift and source is not None and brief.previous is None and is_model(spec):
        from kernellab.agents.model import lift

        talk = bench.talk(Role.DESIGNER, spec, channel)
        return StartedDesign(lift(source, brief.task, brief.target, talk, bench.knowledge()))
    designer = bench.role(Role.DESIGNER, spec, channel)
    if spec != "rules":
        return StartedDesign(designer.design(brief))
    if brief.route is not None and brief.route.measure:
        from kernellab.session.turn.tuned import measured_design

        return StartedDesign(measured_design(bench, designer, brief, channel, brief.route.measure))
    if brief.previous is None:
        return _first_by_rules(bench, designer, brief, channel)
    if _must_be_faster(brief):
        from kernellab.session.turn.tuned import faster_design

        return StartedDesign(faster_design(bench, designer, brief, channel))
    return StartedDesign(designer.design(brief))


def _first_by_rules(bench: Bench, designer: RulesDesigner, brief: DesignBrief, channel: Channel) -> StartedDesign:
    """The rules' first design: chosen by measurement, begun as a remembered kernel, or as it is."""
    if bench.created.tune or brief.allow_library:
        from kernellab.session.turn.tuned import tuned_design

        return tuned_design(bench, designer, brief, channel)
    if not brief.pins and bench.recall() is not None:
        replies = designer.designs(brief)
        return from_nearest(replies, starts(bench, replies))
    return StartedDesign(designer.design(brief))


def _must_be_faster(brief: DesignBrief) -> bool:
    """Whether the work returned because the kernel is slower than eager, not because there is headroom."""
    last = brief.history[-1].verdict if brief.history else None
    is_for_speed = brief.route is not None and brief.route.error_class == ErrorClass.PERFORMANCE
    return is_for_speed and not brief.pins and is_slow(last)


# -- the gate ----------------------------------------------------------------------------------------------------------


def _gate(bench: Bench, turn: Turn, brief: DesignBrief) -> GateResult:
    from kernellab.sketch.gate import gate

    assert turn.sketch is not None
    refused = _refused(brief.previous, brief.held, turn) if brief.previous is not None else None
    if refused is not None:
        return refused
    values = {**turn.constexpr, **bench.created.constexpr}
    try:
        return gate(turn.sketch, brief.task, chip=brief.target.chip, constexpr=values)
    except SketchError as error:
        diagnostics = list(error.diagnostics) or [Diagnostic(line=1, col=1, code="SK000", message=str(error))]
        return GateResult(state=GateState.NOT_RUNNABLE, reason=error.message, diagnostics=diagnostics)


def repinned(turn: Turn, state: State) -> Turn:
    """Check a finished turn against pins that were set while it ran: a sketch that breaks them is refused."""
    now = obligations_at(state, turn.parent)
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


def breaches_of_replies(state: State, parent: str, exchanges: Iterable[Exchange]) -> tuple[str, ...]:
    """Pins and constraints that a Designer's replies broke, reply by reply. None of these replies became its sketch."""
    from kernellab.agents.model.reply.answers import AnswerError
    from kernellab.agents.model.reply.sketches import parse_sketch

    now = obligations_at(state, parent)
    messages: list[str] = []
    for exchange in exchanges:
        try:
            revision = parse_sketch(exchange.reply, now.sketch or None).sketch
        except AnswerError:
            continue
        breaches = check_pins(now.sketch, revision, Author.MODEL, now.kept)
        messages += [f"line {d.line}: {d.message}" for d in breaches if d.severity == "error"]
    return tuple(messages)
