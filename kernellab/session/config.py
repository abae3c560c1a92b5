"""What ``kernellab.toml`` and this process say about sessions and models, beneath what a call says itself."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from kernellab.agents.roles import is_model, players_of
from kernellab.errors import ModelError, SessionError
from kernellab.models import ModelSettings, open_model
from kernellab.records import Role

FILE = "kernellab.toml"

Kind = TypeVar("Kind", bound=BaseModel)

#: settings of models that this process was given (``%config KernelLab``, a script), by name
_GIVEN: dict[str, Any] = {}


class MemoryDefaults(BaseModel):
    """``[memory]`` of ``kernellab.toml``.

    ``use`` is "on", "off", a store's place (any URI that LanceDB takes), or "": where the workspace has a store.
    ``offer`` says what becomes of verified kernels at a session's or a run's end: "ask" a person, "always", "never".
    ``embed`` names an embedding model for searches by words, "model:NAME" at the endpoint of ``[models]`` or
    "local:NAME" by sentence-transformers; "" does without.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    use: str = ""
    offer: Literal["ask", "always", "never"] = "ask"
    embed: str = ""


class Defaults(BaseModel):
    """``[session]`` of ``kernellab.toml``; each is the argument of :func:`kernellab.session.design` of that name."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    dsl: str | None = None
    roles: str | dict[str, str] | None = None
    approve: str | None = None
    budget: str | None = None
    max_turns: int | None = Field(default=None, ge=1)
    improve: bool | None = None


def defaults(workspace: Path) -> Defaults:
    """What ``[session]`` of the workspace's ``kernellab.toml`` says.

    Raises:
        SessionError: the file or a value in it is wrong; the sentence names it.
    """
    return _table(workspace, "session", Defaults)


def memory_defaults(workspace: Path) -> MemoryDefaults:
    """What ``[memory]`` of the workspace's ``kernellab.toml`` says. Raises SessionError, as :func:`defaults`."""
    return _table(workspace, "memory", MemoryDefaults)


def _table(workspace: Path, table: str, kind: type[Kind]) -> Kind:
    path = workspace / FILE
    if not path.is_file():
        return kind()
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        return kind.model_validate(tomllib.loads(path.read_text(encoding="utf-8")).get(table, {}))
    except (OSError, UnicodeError, tomllib.TOMLDecodeError) as error:
        raise SessionError(f"{path} cannot be read: {error}.", "Fix the file.") from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = ".".join(str(part) for part in first["loc"]) or "the table"
        known = ", ".join(kind.model_fields)
        reason = "no such setting" if first["type"] == "extra_forbidden" else first["msg"]
        raise SessionError(f"In {path}, [{table}] {name} is wrong: {reason}.", f"Choose one of {known}.") from None


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
