"""A person plays a role: the brief that a model would get, and a reply in a model's format as a decision."""

from __future__ import annotations

from kernellab.agents.briefs import CodeReply, DesignReply
from kernellab.agents.roles import parse_role
from kernellab.errors import SessionError
from kernellab.records import Role, Route
from kernellab.session.engine import placing
from kernellab.session.engine.driver import Decision
from kernellab.session.record.events import Event
from kernellab.session.record.state import State
from kernellab.session.turn.briefing import analyse_brief, asked_role, brief_of
from kernellab.session.turn.context import Bench
from kernellab.session.turn.recalling import reminded


def brief_of_role(bench: Bench, state: State, role: str | Role | None) -> str:
    """The prompt of ``role`` as a model would receive it now (default: the role that a person is asked to play).

    Raises:
        SessionError: no role is asked for or named, or the role has nothing to work on yet.
        TaskError, TargetError: the session cannot run.
    """
    from kernellab.agents.model import brief_text, prompt

    chosen_role, parent = role_now(state, role), state.standing_on
    if chosen_role is Role.ANALYST:
        return brief_text(prompt(analyse_brief(bench, state, parent, ""), bench.knowledge()))
    return brief_text(prompt(reminded(bench, brief_of(bench, state, chosen_role, parent)), bench.knowledge()))


def answer(bench: Bench, state: State, text: str, role: str | Role | None) -> Decision:
    """Return the decision that a reply in a model's format stands for.

    Raises:
        SessionError: no role is asked for.
        AnswerError: the reply does not contain what the role must answer; its findings say where.
    """
    from kernellab.agents.model import parse_answer

    reply = parse_answer(text, brief_of(bench, state, role_now(state, role), state.standing_on))

    def decide(state: State) -> list[Event]:
        if isinstance(reply, DesignReply):
            return placing.place_sketch(
                state, reply.sketch,
                constexpr=dict(reply.constexpr), rationale=reply.rationale, claims=tuple(reply.claims),
            )  # fmt: skip
        if isinstance(reply, CodeReply):
            return placing.place_source(state, reply.source, rationale=reply.rationale)
        assert isinstance(reply, Route)
        return placing.place_route(state, reply)

    return decide


def role_now(state: State, role: str | Role | None) -> Role:
    """Return ``role``, or the role that a person is asked to play. Raises SessionError if there is none."""
    if role is not None:
        return parse_role(role)
    role_asked = asked_role(state)
    if role_asked is None:
        raise SessionError("The session is not waiting for you.", "Say which role: designer, coder or conductor.")
    return role_asked
