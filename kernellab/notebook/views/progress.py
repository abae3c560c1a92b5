"""What a session does now, and what it does next: the lines under the workbench's header, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kernellab.models.chat import WAITING
from kernellab.notebook.views.verdict import BASELINES
from kernellab.records import Author, Role, Stage, StageResult, StageState, Verdict
from kernellab.session.engine.approval import Expected, expected
from kernellab.session.engine.comparing import Measurement
from kernellab.session.engine.steps import Ask, Do, End, next_action
from kernellab.session.record.records import QuestionKind, SessionStatus, Turn, TurnState
from kernellab.session.record.state import State
from kernellab.verifier.protocol.stats import one_line_each


@dataclass(frozen=True)
class Activity:
    """What runs in this process and is in no journal: ``stages`` are those that running verifications have finished or
    begun, by turn; ``partial`` is what a model has written so far; ``report`` is what the running turn says that it
    does; ``measurement`` is what is timed in the background."""

    stages: Mapping[str, Sequence[StageResult]] = field(default_factory=dict)
    partial: str = ""
    report: str = ""
    measurement: Measurement | None = None


def doing(state: State, activity: Activity, is_task_read: bool) -> str:
    """What the running turn waits for before its own work, or what a verification does and how long the rest took the
    last time a kernel passed here. At rest, what is timed in the background: next to a running turn's role and seconds
    it would read as that turn's work."""
    turn, timing = state.head_turn, _timing(state, activity.measurement)
    stages = activity.stages.get(turn.id) if turn is not None else None
    if turn is None or stages is None:
        return "" if turn is not None and turn.state is TurnState.RUNNING else timing
    if stages:
        return _verifying(state, stages) or activity.report  # after the stages: a run with the best so far
    if turn.role is Role.VERIFIER:
        return f"waiting for the judge, which is {timing}" if timing else "waiting for the judge"
    return _waiting(turn, activity, is_task_read)


def _waiting(turn: Turn, activity: Activity, is_task_read: bool) -> str:
    """What a turn of another role than the Verifier waits for, or reports."""
    if not is_task_read:
        return "reading the task"
    if activity.partial.startswith(WAITING):
        return "waiting for its server"
    if activity.report:
        return activity.report
    return "no words yet" if turn.author is Author.MODEL and not activity.partial else ""


def _verifying(state: State, stages: Sequence[StageResult]) -> str:
    """The stage that runs, and about how long the rest takes; "" between stages."""
    by_name = {stage.name: stage for stage in one_line_each(stages)}
    newest = next((stage for stage in reversed(stages) if stage.state is StageState.RUNNING), None)
    if newest is None or by_name[newest.name].state is not StageState.RUNNING:
        return ""
    words = f"{newest.name.value}: {newest.note}" if newest.note else newest.name.value
    passed = [turn.verdict for turn in state.turns.values() if turn.verdict is not None and turn.verdict.passed]
    return f"{words}; about {max(1, round(_seconds_left(passed[-1], by_name)))} s left" if passed else words


def _seconds_left(like: Verdict, by_name: Mapping[Stage, StageResult]) -> float:
    """The seconds that the stages which have not ended took in the verification ``like``."""
    left = 0.0
    for stage in one_line_each(like.stages):
        done = by_name.get(stage.name)
        if done is None or done.state is StageState.RUNNING:
            left += max(0.0, stage.seconds - (done.seconds if done else 0.0))
    return left


def _timing(state: State, measurement: Measurement | None) -> str:
    """What a measurement in the background times: kernels, each named by the turn that wrote it; "" without one."""
    if measurement is None:
        return ""
    numbers = [str((state.source_turn(turn) or state.turns[turn]).number) for turn in measurement.turns]
    if len(numbers) > 1:
        return f"timing turns {', '.join(numbers[:-1])} and {numbers[-1]} in one run"
    rivals = [BASELINES.get(name, name) for name in measurement.baselines if name != "eager"] or ["PyTorch eager"]
    return f"timing turn {numbers[0]} again, next to {' and '.join(rivals)}"


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
