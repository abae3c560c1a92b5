"""Assembles a prompt from parts under a budget, and reports each part's source and what was cut.

The parts keep their order: those that hold for every task come first (the system message), those that change with each
turn last, so that servers which cache a prompt's prefix can reuse it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kernellab.errors import KernellabError
from kernellab.models.exchanges import ChatMessage, Section
from kernellab.models.tokens import estimate
from kernellab.verifier.protocol.sanitize import shown

#: Number of tokens below which a trimmed part is omitted.
_LEAST = 60


class PromptError(KernellabError):
    """The required parts of a prompt do not fit into its budget."""


@dataclass(frozen=True)
class Part:
    """One section before it is placed. ``shorter`` are its shorter forms, longest first.

    ``rank`` is the order in which parts are shortened when the budget is exceeded: the highest first, 0 never.
    """

    name: str
    source: str
    text: str
    rank: int = 0
    shorter: tuple[str, ...] = ()
    #: In the system message, which is the same for every turn of the role.
    stable: bool = False
    #: Its last lines may be cut.
    trims: bool = False


@dataclass(frozen=True)
class Prompt:
    """The messages of one request, and the source of each part. ``tokens`` is an estimate."""

    messages: tuple[ChatMessage, ...]
    sections: tuple[Section, ...]
    schema: Mapping[str, Any] | None = None
    schema_name: str = ""
    #: The purpose from which a repair of the reply continues.
    purpose: str = ""
    #: The parts from which it was assembled.
    parts: tuple[Part, ...] = field(default=(), compare=False, repr=False)

    @property
    def tokens(self) -> int:
        return sum(s.tokens for s in self.sections)

    def within(self, budget: int) -> Prompt:
        """Return the same prompt in at most ``budget`` tokens, shortened by the parts' ranks. Raises PromptError."""
        return assemble(
            self.parts, budget, purpose=self.purpose, schema=self.schema, schema_name=self.schema_name
        )  # fmt: skip


def _plain(part: Part) -> Part:
    """Return the part with invisible and direction-changing characters as escapes, so that a person and the model read
    the same prompt."""
    return replace(part, text=shown(part.text), shorter=tuple(map(shown, part.shorter)))


def assemble(
    parts: Sequence[Part], budget: int, *, purpose: str, schema: Mapping[str, Any] | None = None, schema_name: str = ""
) -> Prompt:
    """Return the prompt of ``parts`` (empty ones are omitted) in at most ``budget`` tokens.

    Raises:
        PromptError: the parts that may not be shortened exceed the budget (the longest one is named).
    """
    placed = [_Placed(_plain(part)) for part in parts if part.text.strip()]
    while (excess := sum(p.tokens for p in placed) - budget) > 0:
        reducible = [p for p in placed if p.part.rank and p.text]
        if not reducible:
            longest = max(placed, key=lambda p: p.tokens)
            raise PromptError(
                f"The prompt is {excess} tokens over its budget of {budget}; its longest part is {longest.part.name!r} "
                f"with {longest.tokens}.",
                "Set `prompt_tokens` under [models] to more, or shorten that part.",
            )
        max(reducible, key=lambda p: (p.part.rank, p.tokens)).give(excess)
    system = "\n\n".join(p.text for p in placed if p.part.stable and p.text)
    user = "\n\n".join(p.text for p in placed if not p.part.stable and p.text)
    messages = [ChatMessage(role="system", content=system)] if system else []
    return Prompt(
        messages=(*messages, ChatMessage(role="user", content=user)),
        sections=tuple(
            Section(name=p.part.name, source=p.part.source, tokens=p.tokens, note=p.note)
            for p in sorted(placed, key=lambda p: not p.part.stable)
        ),
        schema=schema,
        schema_name=schema_name,
        purpose=purpose,
        parts=tuple(parts),
    )


class _Placed:
    """A part and its current form in the prompt."""

    def __init__(self, part: Part) -> None:
        self.part = part
        self.text = part.text.strip()
        self.whole = self.tokens = estimate(self.text)
        self._forms = [form.strip() for form in part.shorter]
        self.note = ""

    def give(self, over: int) -> None:
        """Use a shorter form, then as many whole lines as fit, then nothing."""
        if self._forms:
            self._become(self._forms.pop(0), f"a shorter form; {self.whole} tokens in full")
        elif self.part.trims and self.tokens - over >= _LEAST:
            self._become(_head(self.text, self.tokens - over), f"cut from {self.whole} tokens to fit the budget")
        else:
            self._become("", f"left out: {self.whole} tokens over the budget")

    def _become(self, text: str, note: str) -> None:
        if estimate(text) >= self.tokens:
            # a form that is not shorter has no benefit
            text, note = ("", f"left out: {self.whole} tokens over the budget") if not self._forms else (self.text, "")
        self.text, self.tokens, self.note = text, estimate(text), note


def _head(text: str, tokens: int) -> str:
    """The first whole lines of ``text``, with a note about the cut; code fences are closed."""
    lines: list[str] = []
    remaining = tokens - 8
    for line in text.splitlines():
        remaining -= estimate(line) + 1
        if remaining < 0:
            break
        lines.append(line)
    if sum(line.startswith("```") for line in lines) % 2:
        lines.append("```")
    return "\n".join([*lines, "(the rest is left out)"]) if lines else ""


def brief_text(prompt: Prompt) -> str:
    """The prompt as one text for a person, or for a chat in another window: the messages that a model would receive."""
    return "\n\n".join(message.content for message in prompt.messages)
