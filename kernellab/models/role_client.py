"""A role's connection to its model: each request is checked against the budget, recorded and counted."""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernellab.errors import ModelError, ModelFault
from kernellab.models.budget import Budget, no_price
from kernellab.models.chat import ChatModel, ChatReply, ChatRequest
from kernellab.models.exchanges import ChatMessage, Exchange, Finish, Section, Usage
from kernellab.models.json_text import NoJson, fault_of, read_object
from kernellab.models.keys import scrub
from kernellab.models.tokens import estimate
from kernellab.records import Role

#: Finishes that are not answers: kind, sentence, remedy.
_NO_ANSWER = {
    Finish.TRUNCATED: (
        ModelFault.TRUNCATED, "The reply of {model} was cut off after {tokens} tokens; half a reply is not used.",
        "Raise `max_tokens` (a reply without end is stopped by `max_reply_chars`), or set `prompt_tokens` to less.",
    ),
    Finish.FILTERED: (
        ModelFault.FILTERED, "{model} or its filter refused to answer{said}.",
        "Word the task or the notes differently, or choose another model.",
    ),
    Finish.EMPTY: (
        ModelFault.EMPTY, "{model} answered with nothing{only}.", "Resume to ask again, or choose another model.",
    ),
}  # fmt: skip
#: Minimum tokens of a prompt that is compared with the server's count; share below which the server cuts prompts.
_LONG_PROMPT, _CUT = 1_500, 0.6
#: Tokens of the shortest useful reply, and of one that is rarely exceeded.
_SHORTEST, _USUAL = 200, 4_000
#: Repeats the request for JSON after a reply without a valid object.
_REPAIR = (
    "Your last reply cannot be used: {fault}. Answer again with one JSON object and nothing else, "
    "following this JSON schema:\n{schema}"
)


@dataclass(frozen=True)
class _Pending:
    """A request that was sent; ``started`` is in seconds since the epoch."""

    role: Role
    request: ChatRequest
    sections: tuple[Section, ...]
    started: float

    def exchange(self, model: str, finish: Finish, error: str, usage: Usage, warning: str) -> Exchange:
        """The record of the request, without a reply."""
        schema = self.request.schema
        return Exchange(
            id=uuid.uuid4().hex, role=self.role, purpose=self.request.purpose, model=model,
            messages=self.request.messages, schema_=dict(schema) if schema is not None else None,
            sections=self.sections, finish=finish, error=error, usage=usage, started=self.started, warning=warning,
        )  # fmt: skip


def _with_reply(exchange: Exchange, reply: ChatReply) -> Exchange:
    return exchange.model_copy(update={
        "model": reply.model, "sections": (*exchange.sections, *_recorded(reply)), "reply": reply.text,
        "reasoning": reply.reasoning, "steps": reply.steps, "others": reply.others, "by_agent": reply.by_agent,
        "shared_machine": reply.shared_machine, "attempts": reply.attempts, "recorded_at": reply.recorded_at,
    })  # fmt: skip


class Talk:
    """One role's connection to its model. ``record`` receives an :class:`Exchange` per request, also after a failure.

    A reply that is cut, filtered or empty is recorded and raised; the role never receives it.
    """

    def __init__(
        self,
        model: ChatModel,
        role: Role,
        record: Callable[[Exchange], None],
        budget: Budget | None = None,
        cancel: threading.Event | None = None,
        on_text: Callable[[str], None] | None = None,
        attended: bool = False,
    ) -> None:
        self.model = model
        self.role = role
        self.budget = budget
        self.cancel = cancel
        #: Whether a person can be asked between two requests.
        self.attended = attended
        #: The length of the longest prompt, if the settings say it.
        self.prompt_tokens: int | None = getattr(model, "prompt_tokens", None)
        self._record = record
        #: Tokens of the first prompt that the model refused as too long; 0 if none.
        self._too_long = 0
        self._on_text = on_text

    def ask(
        self,
        purpose: str,
        messages: Sequence[ChatMessage],
        sections: Sequence[Section] = (),
        schema: Mapping[str, Any] | None = None,
        schema_name: str = "",
        max_tokens: int | None = None,
    ) -> ChatReply:
        """Send a request and wait; the reply is complete and not empty. ``sections`` describe the parts of the prompt.

        Raises:
            ModelError: no answer, or the budget is spent. The partial reply is in the record.
        """
        # a key that a log or a person's cell brought into the prompt is neither sent nor recorded
        messages = tuple(message.model_copy(update={"content": scrub(message.content)}) for message in messages)
        requested_tokens, max_tokens = max_tokens, self._affordable(messages, max_tokens)
        if self.cancel is not None and self.cancel.is_set():
            raise ModelError(ModelFault.CANCELLED, "The request was cancelled.", "Resume to ask again.", resumable=True)
        request = ChatRequest(messages, schema, schema_name, max_tokens, purpose=purpose)
        pending = _Pending(self.role, request, tuple(sections), time.time())
        try:
            reply = self.model.ask(request, cancel=self.cancel, on_text=self._on_text)
        except ModelError as error:
            # the too long prompt may include results of tools
            if error.kind is ModelFault.CONTEXT and not (error.reply and error.reply.steps):
                self._too_long = self._too_long or _tokens(messages)
            finish = _FINISH_OF.get(error.kind, Finish.ERROR)
            self._keep(pending, error.reply, finish, f"{error.kind.value}: {error.message}")
            raise
        except BaseException as error:  # not the model's fault; the request is recorded nevertheless
            finish = Finish.CANCELLED if isinstance(error, KeyboardInterrupt) else Finish.ERROR
            self._keep(pending, None, finish, f"{type(error).__name__}: {error}")
            raise
        no_answer = _no_answer(reply, None if max_tokens == requested_tokens else max_tokens)
        message = f"{no_answer.kind.value}: {no_answer.message}" if no_answer else ""
        self._keep(pending, reply, reply.finish, message)
        if no_answer is not None:
            raise no_answer
        return reply

    def _keep(self, pending: _Pending, reply: ChatReply | None, finish: Finish, error: str) -> None:
        """Charge the budget, and record the exchange; ``reply`` is None if nothing arrived."""
        usage = reply.usage if reply else Usage(seconds=time.time() - pending.started)
        if self.budget is not None:
            self.budget.spend(usage)
        warning = self._warning(pending.request.messages, usage, reply)
        exchange = pending.exchange(self.model.name, finish, scrub(error), usage, warning)
        self._record(_with_reply(exchange, reply) if reply else exchange)

    def _warning(self, messages: Sequence[ChatMessage], usage: Usage, reply: ChatReply | None) -> str:
        """Anomalies of an answered exchange, in sentences; "" if there are none."""
        # with steps, the tokens are of several requests, or only of the last one
        cut = "" if reply is None or reply.steps else _cut_prompt(messages, usage)
        if reply is None or reply.finish is not Finish.STOP:
            return cut
        small = (
            f"A prompt of about {self._too_long:,} tokens was too long for {reply.model}, which got one of about "
            f"{_tokens(messages):,}. Give it a larger window, or set prompt_tokens under [models] to what it takes."
        )
        return " ".join(filter(None, (reply.warning, cut, small if self._too_long else "")))

    def _affordable(self, messages: Sequence[ChatMessage], max_tokens: int | None) -> int | None:
        """The maximum reply length to request: ``max_tokens``, or less if the budget is nearly spent.

        Raises:
            ModelError: the request does not fit into the budget.
        """
        if self.budget is None:
            return max_tokens
        prompt_tokens = _tokens(messages)
        price = self.model.price
        usd = price.of(Usage(input_tokens=prompt_tokens)) if price else 0.0
        if self.model.free:
            self.budget.check()
            return max_tokens
        # an agent may report dollars without a price
        if self.budget.limits.usd is not None and price is None and not getattr(self.model, "reports_usd", False):
            raise no_price(self.model.name)
        self.budget.check(prompt_tokens + _SHORTEST, usd)
        tokens_left = self.budget.left("tokens")
        if tokens_left is None or tokens_left - prompt_tokens >= _USUAL:
            return max_tokens
        return min(int(tokens_left) - prompt_tokens, max_tokens or _USUAL)

    def ask_json(
        self,
        purpose: str,
        messages: Sequence[ChatMessage],
        schema: Mapping[str, Any],
        sections: Sequence[Section] = (),
        schema_name: str = "",
        max_tokens: int | None = None,
        repairs: int = 1,
    ) -> tuple[dict[str, Any], ChatReply]:
        """Request JSON that follows ``schema``: with the server's support if available, otherwise parsed tolerantly.

        An invalid reply is returned with its fault, ``repairs`` times, each a separate exchange.

        Raises:
            ModelError: see :meth:`ask`; kind ``garbage`` if the last reply is invalid too.
        """
        conversation = tuple(messages)
        while True:
            reply = self.ask(purpose, conversation, sections, schema, schema_name, max_tokens)
            try:
                value = read_object(reply.text)
                fault = fault_of(value, schema)
            except NoJson as error:
                fault = f"there is no usable JSON in it: {error}"
            if not fault:
                return value, reply
            if repairs <= 0:
                raise ModelError(
                    ModelFault.GARBAGE, f"{reply.model} did not answer in the form that was asked for: {fault}.",
                    "Resume to ask again, or choose another model.", resumable=True, reply=reply,
                )  # fmt: skip
            repairs -= 1
            repair = _REPAIR.format(fault=fault, schema=json.dumps(schema))
            conversation = (
                *messages, ChatMessage(role="assistant", content=reply.text), ChatMessage(role="user", content=repair)
            )  # fmt: skip


def _tokens(messages: Sequence[ChatMessage]) -> int:
    return sum(estimate(message.content) for message in messages)


def _cut_prompt(messages: Sequence[ChatMessage], usage: Usage) -> str:
    """A warning if the server counts far fewer prompt tokens than were sent; otherwise empty."""
    sent = _tokens(messages)
    if usage.estimated or not usage.input_tokens or sent < _LONG_PROMPT or usage.input_tokens > _CUT * sent:
        return ""
    return (
        f"The server counted {usage.input_tokens:,} tokens of a prompt of about {sent:,}: it seems to cut prompts. "
        "Give it a larger context (num_ctx, max-model-len), or set prompt_tokens under [models] to less."
    )


def _recorded(reply: ChatReply) -> tuple[Section, ...]:
    """The recording's difference from the request, as an empty section."""
    return (Section(name="recording", source=reply.model, tokens=0, note=reply.note),) if reply.note else ()


_FINISH_OF = {
    ModelFault.CANCELLED: Finish.CANCELLED, ModelFault.FILTERED: Finish.FILTERED,
    ModelFault.TRUNCATED: Finish.TRUNCATED, ModelFault.EMPTY: Finish.EMPTY,
}  # fmt: skip


def _no_answer(reply: ChatReply, left: int | None = None) -> ModelError | None:
    """The error of a reply; None if it is an answer. ``left``: the tokens to which the budget limited it."""
    finish = Finish.EMPTY if reply.finish is Finish.STOP and not reply.text.strip() else reply.finish
    if finish is Finish.STOP:
        return None
    if finish is Finish.TRUNCATED and left is not None:
        return ModelError(
            ModelFault.TRUNCATED, f"The reply of {reply.model} is longer than the {left} tokens that the budget left "
            "for it; half a reply is not used.", "Raise the budget and resume; nothing is lost.", reply=reply,
        )  # fmt: skip
    kind, sentence, remedy = _NO_ANSWER.get(
        finish, (ModelFault.SERVER, "{model} ended its reply with an error.", "Resume to ask again.")
    )
    beginning = " ".join(reply.text.split())[:200]
    sentence = sentence.format(
        model=reply.model, tokens=reply.usage.output_tokens, said=f': "{beginning}"' if beginning else "",
        only=" but reasoning" if reply.reasoning else "",
    )  # fmt: skip
    return ModelError(kind, sentence, remedy, resumable=kind in (ModelFault.EMPTY, ModelFault.SERVER), reply=reply)
