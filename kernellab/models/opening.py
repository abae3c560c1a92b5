"""From the word in a role's setting to a model."""

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


# -- does a model answer? One short request, as a role would send it ---------------------------------------------------

_ASKED = (ChatMessage(role="user", content="Answer with the one word: yes"),)


def probe(role: Role, settings: ModelSettings) -> str:
    """Ask the role's model for one token: "answers in 0.4 s", or the sentence that says why it does not.

    A reply that is cut after its first token is an answer here.
    """
    try:
        quick = settings.model_copy(update={"retries": 0, "total_s": min(settings.total_s, 30.0)})
        reply = open_model("model", role, quick).ask(ChatRequest(_ASKED, max_tokens=1))
    except ModelError as error:
        return str(error)
    return f"answers in {reply.seconds:.1f} s"
