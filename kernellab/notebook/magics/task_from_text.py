"""An operator in words becomes a cell: a task's text, for a person to read before it is used."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kernellab.exchanges import Exchange
    from kernellab.session.turn.task_from_text import Proposal

#: what was said for a task that is not designed for yet, by the session's name
_said: dict[str, tuple[Exchange, ...]] = {}


def propose(words: str, name: str, roles: str | None, budget: str) -> Proposal:
    """Blocking: asks the model that designs or codes (``roles``), else the one that is configured.

    Raises:
        SessionError: no model is configured.
        TaskError: no reply was a usable task.
        ModelError: the model did not answer.
    """
    from kernellab.agents.roles import is_model, parse_roles
    from kernellab.records import Role
    from kernellab.session.turn.task_from_text import propose_task

    specs, _ = parse_roles(roles)
    spec = next((s for role in (Role.DESIGNER, Role.CODER) if is_model(s := specs[role])), "model")
    found = propose_task(words, spec, name, budget=budget)
    _said[name] = found.exchanges
    return found


def said_for(name: str) -> tuple[Exchange, ...]:
    """What was said for the task of that name, once: its session keeps it."""
    return _said.pop(name, ())
