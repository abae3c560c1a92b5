"""Opens the model for a role's setting."""

from __future__ import annotations

from pathlib import Path

from kernellab.errors import ModelError, ModelFault
from kernellab.models.chat import ChatModel, ChatRequest
from kernellab.models.client import EndpointModel
from kernellab.models.exchanges import ChatMessage
from kernellab.models.replay import ReplayModel, read_replay
from kernellab.models.settings import ModelSettings
from kernellab.records import Role


def open_model(spec: str, role: Role, settings: ModelSettings | None = None) -> ChatModel:
    """Open ``model``, ``model:NAME`` or ``replay:FILE``, for ``role``. Sends no request.

    Raises:
        ModelError: kind ``config``: another word, an invalid replay file, or settings without an endpoint.
    """
    kind, _, name = spec.strip().partition(":")
    name = name.strip()
    if kind == "replay" and name:
        return ReplayModel(read_replay(Path(name).expanduser()), role)
    if kind == "model" and (name or ":" not in spec):
        settings = settings or ModelSettings.load()
        return EndpointModel(settings.endpoint(role, name or None), settings)
    raise ModelError(ModelFault.CONFIG, f"{spec!r} is not a chat model.", "Write model, model:NAME or replay:FILE.")


# -- probing a model: one short request, as a role would send it -------------------------------------------------------

_ASKED = (ChatMessage(role="user", content="Answer with the one word: yes"),)


def probe(role: Role, settings: ModelSettings) -> str:
    """Request one token from the role's model. Return "answers in 0.4 s", or the error as a sentence.

    A reply that is cut after its first token counts as an answer here.
    """
    try:
        quick = settings.model_copy(update={"retries": 0, "total_s": min(settings.total_s, 30.0)})
        reply = open_model("model", role, quick).ask(ChatRequest(_ASKED, max_tokens=1))
    except ModelError as error:
        return str(error)
    return f"answers in {reply.seconds:.1f} s"
