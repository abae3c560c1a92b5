"""A growing reply: text separate from reasoning, its ending, and its cost.

Chunks come as objects whose fields may be missing or of another type, since compatible servers differ; each is read by
itself. A tool call comes in pieces: one with its id, its name and the beginning of its arguments (JSON text), then more
arguments at the same position.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kernellab.models.exchanges import ChatMessage, Finish, Usage

_FINISH = {
    "stop": Finish.STOP, "end_turn": Finish.STOP, "eos": Finish.STOP, "stop_sequence": Finish.STOP,
    "length": Finish.TRUNCATED, "max_tokens": Finish.TRUNCATED, "model_length": Finish.TRUNCATED,
    "content_filter": Finish.FILTERED, "safety": Finish.FILTERED, "recitation": Finish.FILTERED,
    "refusal": Finish.FILTERED,
}  # fmt: skip
_OPEN, _CLOSE = re.compile(r"\s*<think(?:ing)?>"), re.compile(r"</think(?:ing)?>\s*")
#: Characters per token for servers without a count; English and code have between three and a half and four.
_CHARS = 4


@dataclass
class CallPieces:
    """A function call of the model, as far as it has arrived."""

    id: str = ""
    name: str = ""
    arguments: str = ""


@dataclass
class Partial:
    """Folds the chunks of one attempt. ``finish`` is the server's own word, None while the reply is incomplete."""

    pieces: list[str] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    finish: str | None = None
    refusal: str = ""
    #: The model's function calls, by slot.
    calls: dict[int, CallPieces] = field(default_factory=dict)
    #: The slot of a call by the position that the server gives it, if it is another one.
    _slots: dict[int, int] = field(default_factory=dict)
    #: Whether functions were offered.
    offered: bool = False
    model: str = ""
    usage: Any = None
    chars: int = 0

    def add(self, chunk: Any) -> str:
        """Add a streamed chunk, or a whole completion. Return the answer's new piece.

        Fields are read one by one and may be missing: many compatible servers omit some.
        """
        self.model = _text(getattr(chunk, "model", None)) or self.model
        self.usage = getattr(chunk, "usage", None) or self.usage
        piece = ""
        choices = getattr(chunk, "choices", None)
        for choice in choices[:1] if isinstance(choices, list) else ():
            self.finish = _text(getattr(choice, "finish_reason", None)) or self.finish
            message = getattr(choice, "delta", None) or getattr(choice, "message", None)
            if message is not None:
                piece += self._take(message)
        return piece

    def _take(self, message: Any) -> str:
        piece, thought = _content(getattr(message, "content", None))
        thought += _text(getattr(message, "reasoning_content", None)) or _text(getattr(message, "reasoning", None))
        self.refusal += _text(getattr(message, "refusal", None))
        for place, call in enumerate(getattr(message, "tool_calls", None) or ()):
            index = getattr(call, "index", None)
            position = index if isinstance(index, int) else place
            self._add_call(position, _text(getattr(call, "id", None)), getattr(call, "function", None))
        # the older form of a call
        if function := getattr(message, "function_call", None):
            self._add_call(0, "", function)
        if piece:
            self.pieces.append(piece)
        if thought:
            self.thoughts.append(thought)
        self.chars += len(piece) + len(thought)
        return piece

    def _add_call(self, position: int, id: str, function: Any) -> None:
        """Add a piece of a call: name and id come once, arguments in pieces."""
        slot = self._slots.get(position, position)
        if id and slot in self.calls and self.calls[slot].id not in ("", id):
            # some servers give every call the position of the first
            slot = self._slots[position] = max(self.calls) + 1
        call = self.calls.setdefault(slot, CallPieces())
        arguments = _text(getattr(function, "arguments", None))
        call.id = call.id or id
        call.name = call.name or _text(getattr(function, "name", None))
        call.arguments += arguments
        self.chars += len(arguments)

    @property
    def text(self) -> str:
        return self.answer()[0]

    def answer(self) -> tuple[str, str]:
        """(text, reasoning): thinking blocks at the text's beginning count as reasoning."""
        text, inline = split_thinking("".join(self.pieces))
        return text, "\n".join(filter(None, ["".join(self.thoughts), inline]))

    def ending(self) -> Finish:
        """How the complete reply ended; ERROR for an unknown word, or a tool that was not offered."""
        if self.refusal:
            return Finish.FILTERED
        if self.calls or self.finish in ("tool_calls", "function_call"):
            return Finish.STOP if self.calls and self.offered else Finish.ERROR
        finish = _FINISH.get((self.finish or "").lower(), Finish.ERROR)
        return Finish.EMPTY if finish is Finish.STOP and not self.text.strip() else finish

    def spent(self, messages: tuple[ChatMessage, ...], called: tuple[Mapping[str, Any], ...] = ()) -> Usage:
        """Tokens by the server's count, otherwise estimated from the lengths of the reply and the request; zero for an
        attempt without any reply."""
        if self.usage is not None:
            return read_usage(self.usage)
        if not self.chars and self.finish is None:
            return Usage()
        request_chars = sum(len(message.content) for message in messages) + sum(len(str(call)) for call in called)
        thought_chars = sum(map(len, self.thoughts))
        return Usage(
            input_tokens=-(-request_chars // _CHARS), output_tokens=-(-self.chars // _CHARS),
            reasoning_tokens=thought_chars // _CHARS, estimated=True,
        )  # fmt: skip


def split_thinking(text: str) -> tuple[str, str]:
    """(answer, reasoning) of a text that may begin with a ``<think>`` block.

    A block without an end is all reasoning. A text with only the end of one began inside it: some servers put the
    opening mark into the prompt.
    """
    opened = _OPEN.match(text)
    closed = _CLOSE.search(text)
    if closed and (opened or not re.search(r"<think(?:ing)?>", text[: closed.start()])):
        return text[closed.end() :], text[opened.end() if opened else 0 : closed.start()].strip()
    if opened:
        return "", text[opened.end() :].strip()
    return text, ""


def read_usage(usage: Any) -> Usage:
    """The server's count. Cached and reasoning tokens are in OpenAI's or DeepSeek's fields."""
    prompt_details = getattr(usage, "prompt_tokens_details", None)
    completion_details = getattr(usage, "completion_tokens_details", None)
    return Usage(
        input_tokens=_count(usage, "prompt_tokens"),
        cached_tokens=_count(prompt_details, "cached_tokens") or _count(usage, "prompt_cache_hit_tokens"),
        output_tokens=_count(usage, "completion_tokens"),
        reasoning_tokens=_count(completion_details, "reasoning_tokens"),
    )


def _content(content: Any) -> tuple[str, str]:
    """(text, thinking) of a content that is a string, or a list of typed parts."""
    if not isinstance(content, list):
        return _text(content), ""
    text, thinking = "", ""
    for part in content:
        get = part.get if isinstance(part, Mapping) else lambda name, part=part: getattr(part, name, None)
        text += _text(get("text"))
        inner = get("thinking")
        thinking += _content(inner)[0] if isinstance(inner, list) else _text(inner)
    return text, thinking


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _count(holder: Any, name: str) -> int:
    value = holder.get(name) if isinstance(holder, Mapping) else getattr(holder, name, None)
    return value if isinstance(value, int) and value > 0 else 0
