"""A plain endpoint as an agent: its model calls functions, looks and tries, and answers within its turn."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from kernellab.errors import ModelError
from kernellab.models import Budget, ChatReply, ChatRequest, Price, added
from kernellab.models.client import EndpointModel
from kernellab.models.dialect import dialect
from kernellab.models.exchanges import Usage
from kernellab.models.ledger import tokens
from kernellab.models.tokens import estimate
from kernellab.tools.desk import SUBMIT, Desk
from kernellab.verifier.judge import turns


class ToolModel:
    """``model`` with the tools of ``desk``. An endpoint that knows no tools is asked as before, which is noted."""

    def __init__(self, model: EndpointModel, desk: Desk, budget: Budget) -> None:
        self._model, self._desk, self._budget = model, desk, budget
        self._functions = tuple(
            {"name": one.name, "description": one.description, "parameters": one.request.model_json_schema()}
            for one in desk.tools.values()
            if one.name != SUBMIT
        )

    @property
    def name(self) -> str:
        return self._model.name

    @property
    def price(self) -> Price | None:
        return self._model.price

    @property
    def free(self) -> bool:
        return False

    @property
    def prompt_tokens(self) -> int | None:
        return self._model.prompt_tokens

    @turns.aside()  # a tool may verify, for which the judge takes its turn at the clock
    def ask(
        self,
        request: ChatRequest,
        *,
        cancel: threading.Event | None = None,
        on_text: Callable[[str], None] | None = None,
    ) -> ChatReply:
        """See :meth:`kernellab.models.ChatModel.ask`; ``steps`` are the calls, ``usage`` that of every request."""
        desk, spent, called = self._desk, Usage(), list[dict[str, Any]]()
        first, until = len(desk.steps), time.monotonic() + self._model.settings.tool_s

        def show(text: str) -> None:
            if on_text is not None:
                on_text("\n\n".join(filter(None, (desk.shown(), text))))

        def whole(reply: ChatReply) -> ChatReply:
            calls = sum(step.kind == "tool" for step in desk.steps[first:])
            usage = added(spent, reply.usage).model_copy(update={"tool_calls": calls, "requests": asked})
            return replace(reply, usage=usage, steps=tuple(desk.steps[first:]))

        functions, asked = self._functions, 0
        while True:
            asked += 1
            try:
                following = replace(request, called=tuple(called), functions=functions)
                reply = self._model.ask(following, cancel=cancel, on_text=show)
            except ModelError as error:
                error.reply = whole(error.reply) if error.reply is not None else None
                raise
            if functions and "tools" in dialect(self._model.endpoint).refused:
                desk.note(f"{self._model.endpoint.host} takes no tools for {self.name}: it answers at once.")
            if not reply.calls:
                return whole(reply)
            spent = added(spent, reply.usage)
            # each is a step in the journal, and one more says that they are used up
            calls = reply.calls[: desk.most + 1]
            called.append({
                "role": "assistant", "content": reply.text or None,
                "tool_calls": [
                    {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}}
                    for c in calls
                ],
            })  # fmt: skip
            for call in calls:
                called.append(
                    {"role": "tool", "tool_call_id": call.id, "content": desk.text(call.name, call.arguments)}
                )
                show("")
            if reached := self._reached(request, called, spent, until):
                desk.note(reached)
                called.append({"role": "user", "content": f"{reached} Answer now, in the form that was asked for."})
                functions = ()

    def _reached(self, request: ChatRequest, called: list[dict[str, Any]], spent: Usage, until: float) -> str:
        """Which bound ends the looking, in a sentence; "" while there is something left."""
        if self._desk.used >= self._desk.most:
            return f"The {self._desk.most} tool calls of this turn are used up."
        if time.monotonic() >= until:
            return f"The {self._model.settings.tool_s:g} s of this turn's tools are over."
        following = sum(estimate(m.content) for m in request.messages) + sum(estimate(str(c)) for c in called)
        most, left = self._model.settings.tool_tokens, self._budget.left("tokens")
        most = most if left is None else min(most, int(left))
        # one more look and the answer after it must fit
        if tokens(spent) + 2 * following >= most:
            return f"{tokens(spent):,} of the {most:,} tokens of this turn's tools are spent."
        usd = self._budget.left("usd")
        if usd is not None and spent.usd is not None and 2 * spent.usd >= usd:
            return f"{spent.usd:.3g} of the {usd:.3g} dollars that are left are spent."
        return ""
