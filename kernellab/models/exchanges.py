"""Requests to a chat model or an agent, and their replies: records of the journal and of replay files."""

from __future__ import annotations

from enum import Enum
from typing import Literal

from kernellab.records import Record, Role


class Usage(Record):
    """The cost of exchanges. ``usd`` is None if the model's price is unknown; ``seconds`` is wall time."""

    input_tokens: int = 0
    #: Input tokens that the server had cached.
    cached_tokens: int = 0
    output_tokens: int = 0
    #: Output tokens that were reasoning.
    reasoning_tokens: int = 0
    usd: float | None = None
    seconds: float = 0.0
    #: Whether the tokens were estimated from the text's length, because the server reported none.
    estimated: bool = False
    #: Number of tool calls.
    tool_calls: int = 0
    #: Requests to the endpoint if one exchange took several; 0 for one, or for an agent, which does not report them.
    requests: int = 0
    #: Exchanges of agents that reported no tokens: theirs are missing above.
    untold: int = 0


class ChatMessage(Record):
    """One message of a prompt."""

    role: Literal["system", "user", "assistant"]
    content: str


class Section(Record):
    """One part of a prompt: its purpose, its source, its cost, and what was cut."""

    name: str
    source: str
    tokens: int
    note: str = ""


class Finish(str, Enum):
    """How a reply ended; only STOP is an answer."""

    STOP = "stop"
    TRUNCATED = "truncated"
    FILTERED = "filtered"
    EMPTY = "empty"
    CANCELLED = "cancelled"
    ERROR = "error"


#: For a tool, ``text`` contains the arguments as JSON, for an edit the difference; ``result`` is the result of either,
#: or the answer to a permission request.
StepKind = Literal["plan", "message", "thought", "tool", "edit", "permission", "note"]


class Step(Record):
    """A step of an agent, or of a model with tools, before its reply. ``started`` is in seconds since the epoch."""

    kind: StepKind
    title: str = ""
    text: str = ""
    result: str = ""
    failed: bool = False
    started: float = 0.0
    seconds: float = 0.0

    def __str__(self) -> str:
        head = f"[{self.kind}{' failed' if self.failed else ''}] {self.title}".rstrip()
        return "\n".join(filter(None, (head, self.text, self.result and f"-> {self.result}")))


class Exchange(Record):
    """One request to a chat model and its reply, as the journal and the replay files store it, without keys.

    ``started`` is in seconds since the epoch; ``schema_`` is the JSON schema that the reply should follow.
    """

    id: str
    role: Role
    #: The request's purpose: design, repair-sketch, code, edit, route, analyse, task, lift.
    purpose: str
    model: str
    messages: tuple[ChatMessage, ...]
    schema_: dict[str, object] | None = None
    sections: tuple[Section, ...] = ()
    reply: str = ""
    #: Additional answers if several were requested: each is a candidate of a search.
    others: tuple[str, ...] = ()
    reasoning: str = ""
    #: Steps before the reply, oldest first.
    steps: tuple[Step, ...] = ()
    #: Whether an agent's program answered, not an endpoint.
    by_agent: bool = False
    #: Whether an agent's program could reach the judge's memory and files.
    shared_machine: bool = False
    finish: Finish = Finish.STOP
    #: The failure's kind and message if there is no reply.
    error: str = ""
    usage: Usage = Usage()
    started: float = 0.0
    attempts: int = 1
    #: Date (ISO) of the recording that answered; "" for a model's own answer.
    recorded_at: str = ""
    #: An anomaly of an answered exchange.
    warning: str = ""

    @property
    def answered_by(self) -> str:
        """The model, with its recording's date if it is one."""
        return f"{self.model} (recorded on {self.recorded_at})" if self.recorded_at else self.model
