"""Settings of sessions and models from ``kernellab.toml`` and this process; a call's own options override them."""

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

#: Model settings set in this process (``%config KernelLab``, a script), by name.
_GIVEN: dict[str, Any] = {}


def defaults(workspace: Path) -> DesignCall:
    """Return the options in ``[session]`` of the workspace's ``kernellab.toml``: a call with only these set.

    Raises:
        SessionError: the file or a value in it is invalid; the message names it.
    """
    return read_table(workspace / FILE, "session", DesignCall, SessionError)


def use_models(**given: Any) -> None:
    """Set model settings for every session of this process, over the environment and the file; None removes one.

    Raises:
        ModelError: a value is invalid; then nothing changes.
    """
    settings = {name: value for name, value in {**_GIVEN, **given}.items() if value is not None}
    ModelSettings.load(**settings)
    _GIVEN.clear()
    _GIVEN.update(settings)


def agents(workspace: Path | None) -> dict[str, AgentOptions]:
    """The options in ``[agents.NAME]`` of the workspace's file, by name. Raises SessionError, like :func:`defaults`."""
    return read_tables((workspace or Path.cwd()) / FILE, "agents", AgentOptions, SessionError)


def agent_options(workspace: Path | None, name: str) -> AgentOptions:
    """Return an agent's options. Raises SessionError if there is no agent of that name."""
    options_by_name = agents(workspace)
    if name not in options_by_name:
        raise SessionError(
            f"There is no agent {name!r}.",
            f'Write [agents.{name}] with command = ["PROGRAM", "acp"] into {FILE}. '
            f"Known: {', '.join(options_by_name) or 'none'}.",
        )
    return options_by_name[name]


def check_agent(name: str, options: AgentOptions, budget: str) -> None:
    """Raise SessionError if the agent's program is missing, or the budget limits what it does not report."""
    if shutil.which(options.command[0]) is None:
        raise SessionError(f"The agent {name}'s program {options.command[0]!r} is not found.", "Install it.")
    limits = Budget.parse(budget).limits
    for quantity in ("tokens", "usd"):
        if getattr(limits, quantity) is not None and quantity not in options.reports:
            raise SessionError(
                f"The budget limits {quantity}, which the agent {name} is not known to report.",
                f'Limit minutes or tool_calls; or write reports = ["{quantity}"] under [agents.{name}] where it does.',
            )


def check_model(role: Role, spec: str, workspace: Path | None, budget: str = "") -> None:
    """Check that a model or an agent can play ``role`` as ``spec`` says, within ``budget``. Sends no request.

    Raises:
        SessionError: no endpoint or key is configured, the file is not a recording, the agent cannot be started, or
            dollars are limited and the model's price is unknown.
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
    """The model settings: this process's, over ``[models]`` of the workspace's file, over the environment.

    Raises:
        ModelError: a value is invalid.
    """
    return ModelSettings.load(workspace, **_GIVEN)
