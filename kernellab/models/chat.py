"""What is asked of a chat model, what comes back, and what a chat model is."""

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
    """A model's call of a function that was offered; ``arguments`` is the JSON text that it wrote."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True)
class ChatRequest:
    """One request. Order ``messages`` from what never changes to what changes each time: servers cache equal prefixes.

    ``schema`` is a JSON schema that the reply should follow, ``schema_name`` its name; say the form in the prompt too,
    since a server may know no schemas. ``max_tokens`` and ``temperature`` override the role's settings. ``purpose``
    says where in the work it is asked; it is not sent. ``functions`` are offered to the model, as the wire has them;
    ``called`` follows ``messages``: calls of functions and their results, as the wire has them.
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
    """What came back. Only ``finish == Finish.STOP`` is an answer; ``text`` is without the reasoning.

    ``usage`` covers every attempt, ``seconds`` is wall time, ``model`` the name that the server gave. ``note`` says how
    a recording's prompt differs from this one; empty for an answer to this very prompt.
    """

    text: str
    reasoning: str
    finish: Finish
    usage: Usage
    model: str
    seconds: float
    attempts: int
    note: str = ""
    #: date (ISO) of the recording that answered
    recorded_at: str = ""
    #: functions that the model calls instead of answering; only where some were offered
    calls: tuple[FunctionCall, ...] = ()
    steps: tuple[Step, ...] = ()
    #: see :attr:`Exchange.by_agent`
    by_agent: bool = False
    #: see :attr:`Exchange.shared_machine`
    shared_machine: bool = False
    #: see :attr:`Exchange.others`
    others: tuple[str, ...] = ()
    #: see :attr:`Exchange.warning`
    warning: str = ""


class ChatModel(Protocol):
    """Anything that answers a request: an endpoint, or a recording of one."""

    @property
    def name(self) -> str: ...

    @property
    def price(self) -> Price | None:
        """What a token costs; None where it is not known."""
        ...

    @property
    def free(self) -> bool:
        """Does asking cost nothing, as with a recording?"""
        ...

    def ask(
        self,
        request: ChatRequest,
        *,
        cancel: threading.Event | None = None,
        on_text: Callable[[str], None] | None = None,
    ) -> ChatReply:
        """Block until the reply is whole. Call it on a worker thread.

        ``on_text`` is called on the caller's thread with all of the answer so far (not the last piece: a retry begins
        again); before the answer begins it gets the reasoning after ``THINKING``, and before another try why and how
        long it waits, after ``WAITING``. ``cancel`` ends the wait within a tenth of a second.

        Raises:
            ModelError: there is no reply. A reply that is cut, filtered or empty is returned and says so.
        """
        ...


#: what ``on_text`` shows before the answer begins, in front of the reasoning
THINKING = "[thinking] "
#: begins the text that is shown while a request waits for its next try
WAITING = "[waiting] "
