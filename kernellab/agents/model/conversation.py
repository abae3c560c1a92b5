"""One turn's conversation with a model: the first request and the repairs, each an Exchange."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from kernellab.agents.model.options import Options
from kernellab.agents.model.prompts.assembly import Prompt, PromptError
from kernellab.errors import ModelError, ModelFault
from kernellab.models import Talk
from kernellab.models.exchanges import ChatMessage, Section
from kernellab.models.tokens import estimate

#: Faults after which the request is repeated once, with a note on brevity after a cut or empty reply.
_REPEATED = (ModelFault.TRUNCATED, ModelFault.EMPTY, ModelFault.FILTERED)
#: Share of its tokens to which a prompt that is too long is reduced, and how often.
_SMALLER, _MOST_REDUCTIONS = 0.6, 3
_SHORTER = (
    "Your last reply did not arrive complete: it reached the limit of its length, or was empty. Answer once more, "
    "without reasoning, in the shortest form that holds everything asked for."
)

T = TypeVar("T")

#: For a model that repeats its reply when asked to correct it: another request would not help.
REPEATS = "The model gave the same reply again when it was asked to correct it."
REPEATED_REMEDY = (
    "Leave the role a note on what is wrong, or give the role to another model, the rules or a person; "
    "a higher temperature under [models] may help."
)


class Conversation:
    """Requests that begin with the same prompt, so that a server's cache of it serves all of them.

    After a cut, empty or filtered reply, the request is repeated once per turn; such a reply is never used.
    """

    def __init__(self, talk: Talk, prompt: Prompt, options: Options) -> None:
        self._talk, self._prompt, self._options = talk, prompt, options
        #: What is sent next: the prompt's messages, then the last reply and the request that follows it.
        self._messages: tuple[ChatMessage, ...] = prompt.messages
        self._sections: tuple[Section, ...] = prompt.sections
        self._repeats_left, self._reductions_left = 1, _MOST_REDUCTIONS
        #: The last reply's text.
        self.last = ""
        #: Whether it repeats the one before.
        self.repeated = False

    def ask(self) -> str:
        """Return the reply to the prompt. Raises ModelError."""
        return self._text(self._prompt.purpose)

    def again(self, request: str, purpose: str) -> str:
        """Return the reply to ``request``, which follows the model's last reply. Raises ModelError.

        Only the last reply is included: earlier faulty ones would be imitated, and cost tokens.
        """
        text_before = self.last.strip()
        self._follow_up(request)
        text = self._text(purpose)
        self.repeated = text.strip() == text_before
        return text

    def ask_json(self) -> dict[str, Any]:
        """Return the object that the prompt's schema describes. Raises ModelError."""
        return self._complete(self._json)

    def again_json(self, request: str) -> dict[str, Any]:
        """Like :meth:`again`, for an object of the prompt's schema."""
        self._follow_up(request)
        return self.ask_json()

    def _text(self, purpose: str) -> str:
        def send() -> str:
            reply = self._talk.ask(purpose, self._messages, self._sections, max_tokens=self._options.max_tokens)
            self.last = reply.text
            return reply.text

        return self._complete(send)

    def _json(self) -> dict[str, Any]:
        prompt = self._prompt
        value, reply = self._talk.ask_json(
            prompt.purpose, self._messages, prompt.schema or {}, self._sections, prompt.schema_name,
            self._options.max_tokens,
        )  # fmt: skip
        self.last = reply.text
        return value

    def _complete(self, send: Callable[[], T]) -> T:
        """Return the result of ``send``, repeated while a changed request may help. Raises ModelError."""
        while True:
            try:
                return send()
            except ModelError as error:
                self._adapt(error)

    def _adapt(self, error: ModelError) -> None:
        """Add a note on brevity, or use a smaller prompt if the last was too long. Raises ``error`` if another request
        would not help, or was made already."""
        if error.kind is ModelFault.CONTEXT and self._reductions_left:
            self._reductions_left -= 1
            self._reduce(int(_SMALLER * self._prompt.tokens), error)
            return
        if error.kind not in _REPEATED or not self._repeats_left:
            raise error
        self._repeats_left -= 1
        if error.kind is ModelFault.FILTERED:
            return  # a filter's decision may differ
        *earlier, last = self._messages
        self._messages = (*earlier, ChatMessage(role=last.role, content=f"{last.content}\n\n{_SHORTER}"))
        self._sections = (*self._sections, Section(name="shorter", source="kernellab", tokens=estimate(_SHORTER)))

    def _reduce(self, budget: int, error: ModelError) -> None:
        """Assemble the prompt in fewer tokens; later messages stay. Raises ``error`` if no part can be shortened."""
        later_messages = self._messages[len(self._prompt.messages) :]
        later_sections = self._sections[len(self._prompt.sections) :]
        try:
            self._prompt = self._prompt.within(budget)
        except PromptError as irreducible:
            raise error from irreducible
        self._messages = (*self._prompt.messages, *later_messages)
        self._sections = (*self._prompt.sections, *later_sections)

    def _follow_up(self, request: str) -> None:
        """Let ``request`` follow the last reply, in the place of earlier ones."""
        self._messages = (
            *self._prompt.messages,
            ChatMessage(role="assistant", content=self.last),
            ChatMessage(role="user", content=request),
        )
        self._sections = (
            *self._prompt.sections,
            Section(name="last reply", source="the model", tokens=estimate(self.last)),
            Section(name="findings", source="kernellab", tokens=estimate(request)),
        )
