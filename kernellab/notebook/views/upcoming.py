"""What the session does next, who does it, and about what it costs."""

from __future__ import annotations

from kernellab.records import Role
from kernellab.session.engine.approval import Expected, expected
from kernellab.session.engine.steps import Ask, Do, End, next_action
from kernellab.session.record.records import QuestionKind, SessionStatus
from kernellab.session.record.state import State


def upcoming(state: State) -> str:
    """The turn that follows when the person goes on, in words; "" while a turn runs or when nothing follows.

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
