"""Chat models: any OpenAI-compatible endpoint or a recording of one, what they cost, and how far they may go.

A role speaks through a :class:`Talk`, which records each :class:`~kernellab.models.exchanges.Exchange`, counts it
against a :class:`Budget` and raises :class:`~kernellab.errors.ModelError` unless a whole answer came. ``open_model``
turns the word in a role's setting into a model; ``ModelSettings`` says where models are, and never holds a key.

Servers keep the work of a prompt's beginning for the next prompt that begins alike. So put what never changes first
(the role, the language's reference), then what changes with the task, then what changes with the turn: messages are
sent as they are, in their order, with nothing added.
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
