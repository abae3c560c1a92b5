"""A prompt is put together from parts under a budget, and says of each part where it is from and what was cut.

The parts keep their order: what holds for every task stands first (the system message), what changes with each turn
last, so that servers which cache a prompt's prefix find it again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kernellab.errors import KernellabError
from kernellab.models.exchanges import ChatMessage, Section
from kernellab.models.tokens import estimate
from kernellab.verifier.protocol.sanitize import shown

#: below this a trimmed part is left out instead
_LEAST = 60


class PromptError(KernellabError):
    """What a prompt must hold does not fit into its budget."""


@dataclass(frozen=True)
class Part:
    """One section before it is placed. ``shorter`` are its shorter forms, longest first.

    ``rank`` orders who gives way when the budget is short: the highest first, 0 never.
    """

    name: str
    source: str
    text: str
    rank: int = 0
    shorter: tuple[str, ...] = ()
    #: stands in the system message, which is the same for every turn of the role
    stable: bool = False
    #: its last lines may be cut off
    trims: bool = False


@dataclass(frozen=True)
class Prompt:
    """The messages of one request, and why each part of them is there. ``tokens`` is an estimate."""

    messages: tuple[ChatMessage, ...]
    sections: tuple[Section, ...]
    schema: Mapping[str, Any] | None = None
    schema_name: str = ""
    #: what a repair of the reply continues from
    purpose: str = ""
    #: what it was assembled from
    parts: tuple[Part, ...] = field(default=(), compare=False, repr=False)

    @property
    def tokens(self) -> int:
        return sum(s.tokens for s in self.sections)

    def within(self, budget: int) -> Prompt:
        """The same prompt in at most ``budget`` tokens, its parts giving way by their ranks. Raises PromptError."""
        return assemble(
            self.parts, budget, purpose=self.purpose, schema=self.schema, schema_name=self.schema_name
        )  # fmt: skip


def _plain(part: Part) -> Part:
    """The part with each character that is not seen, or turns those after it, as an escape: what a person reads of a
    prompt is what the model reads."""
    return replace(part, text=shown(part.text), shorter=tuple(map(shown, part.shorter)))


def assemble(
    parts: Sequence[Part], budget: int, *, purpose: str, schema: Mapping[str, Any] | None = None, schema_name: str = ""
) -> Prompt:
    """The prompt of ``parts`` (empty ones are left out) in at most ``budget`` tokens.

    Raises:
        PromptError: the parts that may not give way are longer than the budget (with the longest one's name).
    """
    given = [_Placed(_plain(part)) for part in parts if part.text.strip()]
    while (over := sum(p.tokens for p in given) - budget) > 0:
        giving = [p for p in given if p.part.rank and p.text]
        if not giving:
            longest = max(given, key=lambda p: p.tokens)
            raise PromptError(
                f"The prompt is {over} tokens over its budget of {budget}; its longest part is {longest.part.name!r} "
                f"with {longest.tokens}.",
                "Set `prompt_tokens` under [models] to more, or shorten that part.",
            )
        max(giving, key=lambda p: (p.part.rank, p.tokens)).give(over)
    system = "\n\n".join(p.text for p in given if p.part.stable and p.text)
    user = "\n\n".join(p.text for p in given if not p.part.stable and p.text)
    messages = [ChatMessage(role="system", content=system)] if system else []
    return Prompt(
        messages=(*messages, ChatMessage(role="user", content=user)),
        sections=tuple(
            Section(name=p.part.name, source=p.part.source, tokens=p.tokens, note=p.note)
            for p in sorted(given, key=lambda p: not p.part.stable)
        ),
        schema=schema,
        schema_name=schema_name,
        purpose=purpose,
        parts=tuple(parts),
    )


class _Placed:
    """A part and the form of it that is in the prompt now."""

    def __init__(self, part: Part) -> None:
        self.part = part
        self.text = part.text.strip()
        self.whole = self.tokens = estimate(self.text)
        self._forms = [form.strip() for form in part.shorter]
        self.note = ""

    def give(self, over: int) -> None:
        """Takes a shorter form, then as many whole lines as remain, then nothing."""
        if self._forms:
            self._become(self._forms.pop(0), f"a shorter form; {self.whole} tokens in full")
        elif self.part.trims and self.tokens - over >= _LEAST:
            self._become(_head(self.text, self.tokens - over), f"cut from {self.whole} tokens to fit the budget")
        else:
            self._become("", f"left out: {self.whole} tokens over the budget")

    def _become(self, text: str, note: str) -> None:
        if estimate(text) >= self.tokens:
            # a form that is not shorter gains nothing
            text, note = ("", f"left out: {self.whole} tokens over the budget") if not self._forms else (self.text, "")
        self.text, self.tokens, self.note = text, estimate(text), note


def _head(text: str, tokens: int) -> str:
    """The first whole lines of ``text``, with a word on the cut; code fences are closed."""
    kept: list[str] = []
    left = tokens - 8
    for line in text.splitlines():
        left -= estimate(line) + 1
        if left < 0:
            break
        kept.append(line)
    if sum(line.startswith("```") for line in kept) % 2:
        kept.append("```")
    return "\n".join([*kept, "(the rest is left out)"]) if kept else ""


def brief_text(prompt: Prompt) -> str:
    """The prompt as one text for a person, or for a chat in another window: what a model would have been sent."""
    return "\n\n".join(message.content for message in prompt.messages)
