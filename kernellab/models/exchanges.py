"""What was said to a chat model or an agent, and what came back: records of the journal and of replay files."""

from __future__ import annotations

from enum import Enum
from typing import Literal

from kernellab.records import Record, Role


class Usage(Record):
    """What exchanges cost. ``usd`` is None when no price is known for the model; ``seconds`` is wall time."""

    input_tokens: int = 0
    #: those of the input that the server had cached
    cached_tokens: int = 0
    output_tokens: int = 0
    #: those of the output that were reasoning
    reasoning_tokens: int = 0
    usd: float | None = None
    seconds: float = 0.0
    #: the server reported no tokens; these were counted from the text's length
    estimated: bool = False
    #: calls of tools
    tool_calls: int = 0
    #: requests to the endpoint where one exchange took several; 0: one, or an agent's, which tells none
    requests: int = 0


class ChatMessage(Record):
    role: Literal["system", "user", "assistant"]
    content: str


class Section(Record):
    """One part of a prompt: why it is there, where its text came from, what it costs, what was cut."""

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


#: of a tool ``text`` holds the arguments as JSON, of an edit the difference; ``result`` is what came of either, and the
#: answer to a permission
StepKind = Literal["plan", "message", "thought", "tool", "edit", "permission", "note"]


class Step(Record):
    """What an agent, or a model with tools, did on the way to its reply. ``started`` is in seconds since the epoch."""

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
    """One request to a chat model and its reply, as the journal and the replay files keep it. No key is in it.

    ``started`` is in seconds since the epoch; ``schema_`` is the JSON schema that the reply was asked to follow.
    """

    id: str
    role: Role
    #: what the request was for: design, repair-sketch, code, edit, route, analyse, task, lift
    purpose: str
    model: str
    messages: tuple[ChatMessage, ...]
    schema_: dict[str, object] | None = None
    sections: tuple[Section, ...] = ()
    reply: str = ""
    #: answers in addition to the reply, where several were asked for: each is a candidate of a search
    others: tuple[str, ...] = ()
    reasoning: str = ""
    #: what was done before the reply, oldest first
    steps: tuple[Step, ...] = ()
    #: an agent's program answered, not an endpoint
    by_agent: bool = False
    #: an agent's program could reach the judge's memory and files
    shared_machine: bool = False
    finish: Finish = Finish.STOP
    #: the failure's kind and sentence when there is no reply
    error: str = ""
    usage: Usage = Usage()
    started: float = 0.0
    attempts: int = 1
    #: date (ISO) of the recording that answered; "" for a model's own answer
    recorded_at: str = ""
    #: what was odd about it although it was answered
    warning: str = ""

    @property
    def answered_by(self) -> str:
        """The model, with its recording's date where it is one."""
        return f"{self.model} (recorded on {self.recorded_at})" if self.recorded_at else self.model
