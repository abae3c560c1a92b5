"""Chat models: any OpenAI-compatible endpoint or a recording of one, their cost, and their limits.

A role sends requests through a :class:`Talk`, which records each :class:`~kernellab.models.exchanges.Exchange`, counts
it against a :class:`Budget` and raises :class:`~kernellab.errors.ModelError` unless a complete answer arrives.
``open_model`` opens the model in a role's setting; ``ModelSettings`` says where models are, and never contains a key.

Servers reuse the work on a prompt's beginning for later prompts with the same beginning. So put constant text first
(the role, the language's reference), then text that changes with the task, then with the turn: messages are sent
unchanged and in order.
"""

from kernellab.errors import ModelError, ModelFault
from kernellab.models.budget import TIME_LIMITS, Budget, Limits
from kernellab.models.chat import THINKING, ChatModel, ChatReply, ChatRequest
from kernellab.models.json_text import NoJson, read_object
from kernellab.models.keys import scrub
from kernellab.models.ledger import Ledger, Totals, added
from kernellab.models.opening import open_model
from kernellab.models.replay import Replay, ReplayModel, read_replay, write_replay
from kernellab.models.role_client import Talk
from kernellab.models.settings import MODEL_ROLES, Configured, ModelSettings, Price, RoleSettings, configured

__all__ = [
    "MODEL_ROLES", "THINKING", "TIME_LIMITS", "Budget", "ChatModel", "ChatReply", "ChatRequest", "Configured",
    "Ledger", "Limits", "ModelError", "ModelFault", "ModelSettings", "NoJson", "Price", "Replay", "ReplayModel",
    "RoleSettings", "Talk", "Totals", "added", "configured", "open_model", "read_object", "read_replay", "scrub",
    "write_replay",
]  # fmt: skip
