"""What ``kernellab.toml`` and this process say about sessions and models, beneath what a call says itself."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from kernellab.agents.roles import is_model, players_of
from kernellab.errors import ModelError, SessionError
from kernellab.models import Budget, ModelSettings, open_model
from kernellab.models.budget import no_price
from kernellab.options.agents import AgentOptions
from kernellab.options.design import DesignCall
from kernellab.options.file import FILE, read_table, read_tables
from kernellab.records import Role

#: settings of models that this process was given (``%config KernelLab``, a script), by name
_GIVEN: dict[str, Any] = {}


def defaults(workspace: Path) -> DesignCall:
    """What ``[session]`` of the workspace's ``kernellab.toml`` says: a call that has only these options set.

    Raises:
        SessionError: the file or a value in it is wrong; the sentence names it.
    """
    return read_table(workspace / FILE, "session", DesignCall, SessionError)


def use_models(**given: Any) -> None:
    """Settings of models for every session of this process, over the environment and the file; None takes one back.

    Raises:
        ModelError: a value is wrong; nothing is changed then.
    """
    wanted = {name: value for name, value in {**_GIVEN, **given}.items() if value is not None}
    ModelSettings.load(**wanted)
    _GIVEN.clear()
    _GIVEN.update(wanted)


def agents(workspace: Path | None) -> dict[str, AgentOptions]:
    """What ``[agents.NAME]`` of the workspace's file says, by name. Raises SessionError, as :func:`defaults`."""
    return read_tables((workspace or Path.cwd()) / FILE, "agents", AgentOptions, SessionError)


def agent_options(workspace: Path | None, name: str) -> AgentOptions:
    """Raises SessionError: there is no agent of that name."""
    known = agents(workspace)
    if name not in known:
        raise SessionError(
            f"There is no agent {name!r}.",
            f'Write [agents.{name}] with command = ["PROGRAM", "acp"] into {FILE}. '
            f"Known: {', '.join(known) or 'none'}.",
        )
    return known[name]


def check_agent(name: str, options: AgentOptions, budget: str) -> None:
    """Raises SessionError: its program is not here, or the budget limits what it does not report."""
    if shutil.which(options.command[0]) is None:
        raise SessionError(f"The agent {name}'s program {options.command[0]!r} is not found.", "Install it.")
    limits = Budget.parse(budget).limits
    for what in ("tokens", "usd"):
        if getattr(limits, what) is not None and what not in options.reports:
            raise SessionError(
                f"The budget limits {what}, which the agent {name} is not known to report.",
                f'Limit minutes or tool_calls; or write reports = ["{what}"] under [agents.{name}] where it does.',
            )


def check_model(role: Role, spec: str, workspace: Path | None, budget: str = "") -> None:
    """Can a model or an agent play ``role`` as ``spec`` says, within ``budget``? Asks no server.

    Raises:
        SessionError: no endpoint or key is configured, the file is no recording, the agent cannot be started, or
            dollars are limited and the model's price is not known.
    """
    dollars = Budget.parse(budget).limits.usd
    try:
        for player in filter(is_model, players_of(spec)):
            kind, _, name = player.partition(":")
            if kind == "agent":
                check_agent(name, agent_options(workspace, name), budget)
                continue
            model = open_model(player, role, None if player.startswith("replay:") else model_settings(workspace))
            if dollars is not None and model.price is None and not model.free:
                raise no_price(model.name)
    except ModelError as error:
        raise SessionError(error.message, error.remedy) from None


def model_settings(workspace: Path | None = None) -> ModelSettings:
    """Where models are: this process's settings over ``[models]`` of the workspace's file over the environment.

    Raises:
        ModelError: a value is wrong.
    """
    return ModelSettings.load(workspace, **_GIVEN)
