"""The interface of a chat model: requests, replies, and the protocol."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from kernellab.models.exchanges import ChatMessage, Finish, Step, Usage

if TYPE_CHECKING:
    from kernellab.models.settings import Price


@dataclass(frozen=True)
class FunctionCall:
    """A model's call of an offered function; ``arguments`` is the JSON text that it wrote."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True)
class ChatRequest:
    """One request. Order ``messages`` from constant to changing ones: servers cache equal prefixes.

    ``schema`` is a JSON schema that the reply should follow, ``schema_name`` its name; describe the form in the prompt
    too, because a server may not support schemas. ``max_tokens`` and ``temperature`` override the role's settings.
    ``purpose`` is the place of the request in the work; it is not sent. ``functions`` are offered to the model, in wire
    format; ``called`` follows ``messages``: function calls and their results, in wire format.
    """

    messages: tuple[ChatMessage, ...]
    schema: Mapping[str, Any] | None = None
    schema_name: str = ""
    max_tokens: int | None = None
    temperature: float | None = None
    purpose: str = ""
    functions: tuple[Mapping[str, Any], ...] = ()
    called: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True)
class ChatReply:
    """A reply. Only ``finish == Finish.STOP`` is an answer; ``text`` excludes the reasoning.

    ``usage`` covers every attempt, ``seconds`` is wall time, ``model`` is the name that the server reported. ``note``
    is the difference between a recording's prompt and this one; empty for an answer to the same prompt.
    """

    text: str
    reasoning: str
    finish: Finish
    usage: Usage
    model: str
    seconds: float
    attempts: int
    note: str = ""
    #: Date (ISO) of the recording that answered.
    recorded_at: str = ""
    #: Functions that the model calls instead of answering; only if some were offered.
    calls: tuple[FunctionCall, ...] = ()
    steps: tuple[Step, ...] = ()
    #: See :attr:`Exchange.by_agent`.
    by_agent: bool = False
    #: See :attr:`Exchange.shared_machine`.
    shared_machine: bool = False
    #: See :attr:`Exchange.others`.
    others: tuple[str, ...] = ()
    #: See :attr:`Exchange.warning`.
    warning: str = ""


class ChatModel(Protocol):
    """Anything that answers a request: an endpoint, or a recording of one."""

    @property
    def name(self) -> str: ...

    @property
    def price(self) -> Price | None:
        """The price of tokens; None if unknown."""
        ...

    @property
    def free(self) -> bool:
        """Whether requests have no cost, as with a recording."""
        ...

    def ask(
        self,
        request: ChatRequest,
        *,
        cancel: threading.Event | None = None,
        on_text: Callable[[str], None] | None = None,
    ) -> ChatReply:
        """Block until the reply is complete. Call this on a worker thread.

        ``on_text`` is called on the caller's thread with the complete answer so far (not the last piece, because a
        retry starts over); before the answer begins, it receives the reasoning after ``THINKING``, and before another
        attempt the reason and the duration of the wait, after ``WAITING``. ``cancel`` ends the wait within a tenth of a
        second.

        Raises:
            ModelError: there is no reply. A reply that is cut, filtered or empty is returned with that finish.
        """
        ...


#: Prefix of the reasoning that ``on_text`` shows before the answer begins.
THINKING = "[thinking] "
#: Prefix of the text that is shown while a request waits for its next attempt.
WAITING = "[waiting] "
