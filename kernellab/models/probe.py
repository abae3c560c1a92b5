"""Does a model answer? One short request, as a role would send it."""

from __future__ import annotations

from kernellab.errors import ModelError
from kernellab.exchanges import ChatMessage
from kernellab.models.chat import ChatRequest
from kernellab.models.opening import open_model
from kernellab.models.settings import ModelSettings
from kernellab.records import Role

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
