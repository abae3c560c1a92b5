"""From the word in a role's setting to a model."""

from __future__ import annotations

from pathlib import Path

from kernellab.errors import ModelError, ModelFault
from kernellab.models.chat import ChatModel
from kernellab.models.client import EndpointModel
from kernellab.models.replay import ReplayModel, read_replay
from kernellab.models.settings import ModelSettings
from kernellab.records import Role


def open_model(spec: str, role: Role, settings: ModelSettings | None = None) -> ChatModel:
    """``model``, ``model:NAME`` or ``replay:FILE``, for ``role``. Asks no server yet.

    Raises:
        ModelError: kind ``config``: another word, a file that is no replay file, or settings that name no endpoint.
    """
    kind, _, name = spec.strip().partition(":")
    name = name.strip()
    if kind == "replay" and name:
        return ReplayModel(read_replay(Path(name).expanduser()), role)
    if kind == "model" and (name or ":" not in spec):
        settings = settings or ModelSettings.load()
        return EndpointModel(settings.endpoint(role, name or None), settings)
    raise ModelError(ModelFault.CONFIG, f"{spec!r} is not a chat model.", "Write model, model:NAME or replay:FILE.")
