"""The features that an endpoint supports. Compatible servers refuse different parts of a request; each is learned
once."""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping
from typing import Any

from kernellab.errors import ModelError, ModelFault
from kernellab.models.chat import ChatRequest
from kernellab.models.exchanges import ChatMessage
from kernellab.models.settings import Endpoint

#: Optional parts that a server may refuse, with the word of the refusal.
_OPTIONAL = (
    ("max_tokens", "max_tokens"),
    ("max_completion_tokens", "max_completion_tokens"),
    ("temperature", "temperature"),
    ("seed", "seed"),
    ("stream_options", "stream_options"),
    ("top_p", "top_p"),
    ("reasoning_effort", "reasoning_effort"),
    ("tools", "tool"),
)
#: A refusal of the system role; some servers fail with 500 in the model's own template.
_SYSTEM = re.compile(
    r"system.{0,20}(role|message|prompt|instruction)|role.{0,20}system|roles? must alternate", re.DOTALL
)
#: "unknown", as opposed to "too large", which a person must fix.
_UNKNOWN = re.compile(
    r"(un|not |n't |no )support|unknown|unrecogni|unexpected|not (permitted|allowed)|"
    r"extra (input|field)|instead|deprecat"
)
_SCHEMA_WORDS = ("response_format", "json_schema", "schema", "structured", "json_object", "grammar", "guided")


class Dialect:
    """The refusals of one model at one address so far. Safe to use from several threads."""

    def __init__(self) -> None:
        self.refused: set[str] = set()

    def body(self, request: ChatRequest, endpoint: Endpoint) -> dict[str, Any]:
        """Return the request as keyword arguments of ``chat.completions.create``."""
        body: dict[str, Any] = {
            "model": endpoint.model,
            "messages": [*(message.model_dump() for message in self._messages(request.messages)), *request.called],
            "stream": True,
        }
        if request.functions and "tools" not in self.refused:
            body["tools"] = [{"type": "function", "function": dict(function)} for function in request.functions]
        if "stream_options" not in self.refused:
            body["stream_options"] = {"include_usage": True}
        temperature = endpoint.temperature if request.temperature is None else request.temperature
        if temperature is not None and "temperature" not in self.refused:
            body["temperature"] = temperature
        for part in ("seed", "top_p", "reasoning_effort"):
            if getattr(endpoint, part) is not None and part not in self.refused:
                body[part] = getattr(endpoint, part)
        headers = dict(endpoint.headers or {})
        headers |= {"OpenAI-Organization": endpoint.organisation} if endpoint.organisation else {}
        body |= {"extra_headers": headers} if headers else {}
        body |= {"extra_body": dict(endpoint.extra_body)} if endpoint.extra_body else {}
        limit = endpoint.max_tokens if request.max_tokens is None else request.max_tokens
        if limit is not None:
            # newer models refuse the older name; most other servers know only that one
            name = next((n for n in ("max_tokens", "max_completion_tokens") if n not in self.refused), None)
            if name:
                body[name] = limit
        if request.schema is not None:
            name = request.schema_name or "answer"
            if "json_schema" not in self.refused:
                schema = {"name": name, "schema": dict(request.schema), "strict": is_strict(request.schema)}
                body["response_format"] = {"type": "json_schema", "json_schema": schema}
            elif "json_object" not in self.refused:
                body["response_format"] = {"type": "json_object"}
        return body

    def left_out(self, endpoint: Endpoint) -> tuple[str, ...]:
        """Settings that the server refused, so that requests omit them."""
        optional = ("temperature", "seed", "top_p", "reasoning_effort")
        names = [name for name in optional if name in self.refused and getattr(endpoint, name) is not None]
        if endpoint.max_tokens is not None and {"max_tokens", "max_completion_tokens"} <= self.refused:
            names.append("max_tokens")
        return (*names, *(("tools",) if "tools" in self.refused else ()))

    def _messages(self, messages: tuple[ChatMessage, ...]) -> tuple[ChatMessage, ...]:
        """Return ``messages``; if the system role is refused, its text precedes the first message's."""
        if "system" not in self.refused or len(messages) < 2 or messages[0].role != "system":
            return messages
        merged = messages[1].model_copy(update={"content": f"{messages[0].content}\n\n{messages[1].content}"})
        return (merged, *messages[2:])

    def learn(self, error: ModelError, status: int, param: str, said: str, body: dict[str, Any]) -> str | None:
        """Return the refused part of ``body``, which is omitted from now on; None if the refusal has another cause.

        A refusal that names nothing is attributed to the schema, which most servers do not support. If the request is
        refused without it too, :meth:`forget` reverts that.
        """
        text = f"{param} {said}".lower()
        has_system = body["messages"][0]["role"] == "system" and "system" not in self.refused
        if has_system and status in (400, 422, 500, 501) and _SYSTEM.search(text):
            self.refused.add("system")
            return "system"
        if error.kind is not ModelFault.CONFIG or status not in (400, 404, 415, 422, 501):
            return None
        for name, word in _OPTIONAL:
            # "use max_completion_tokens instead" names both: the part that was sent is refused
            if name in body and word in text and _UNKNOWN.search(text):
                self.refused.add(name)
                return name
        form = body.get("response_format")
        if form is not None and (status != 404 or any(word in text for word in _SCHEMA_WORDS)):
            self.refused.add(form["type"])
            return str(form["type"])
        return None

    def forget(self, parts: set[str]) -> None:
        self.refused -= parts


def is_strict(schema: Any) -> bool:
    """Whether servers can enforce ``schema``: every property must be required, and no others allowed."""
    if isinstance(schema, list):
        return all(map(is_strict, schema))
    if not isinstance(schema, Mapping):
        return True
    if "properties" in schema or schema.get("type") == "object":
        properties = schema.get("properties", {})
        if schema.get("additionalProperties") is not False or set(schema.get("required", ())) != set(properties):
            return False
        return all(map(is_strict, properties.values())) and is_strict(schema.get("$defs", {}))
    return all(map(is_strict, schema.values()))


_DIALECTS: dict[tuple[str, str], Dialect] = {}
_LOCK = threading.Lock()


def dialect(endpoint: Endpoint) -> Dialect:
    """The process's dialect of this model at this address."""
    with _LOCK:
        return _DIALECTS.setdefault((endpoint.base_url, endpoint.model), Dialect())
