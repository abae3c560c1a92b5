"""What ``kernellab.toml`` and this process say about sessions and models, beneath what a call says itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kernellab.agents.roles import is_model, players_of
from kernellab.errors import ModelError, SessionError
from kernellab.models import ModelSettings, open_model
from kernellab.options.design import DesignCall
from kernellab.options.file import FILE, read_table
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


def check_model(role: Role, spec: str, workspace: Path | None) -> None:
    """Can a model play ``role`` as ``spec`` says? Asks no server.

    Raises:
        SessionError: no endpoint or key is configured, or the file is no recording.
    """
    try:
        for player in filter(is_model, players_of(spec)):
            open_model(player, role, None if player.startswith("replay:") else model_settings(workspace))
    except ModelError as error:
        raise SessionError(error.message, error.remedy) from None


def model_settings(workspace: Path | None = None) -> ModelSettings:
    """Where models are: this process's settings over ``[models]`` of the workspace's file over the environment.

    Raises:
        ModelError: a value is wrong.
    """
    return ModelSettings.load(workspace, **_GIVEN)
