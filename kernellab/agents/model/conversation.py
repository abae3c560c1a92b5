"""One turn's conversation with a model: the first request and the repairs, each an Exchange."""

from __future__ import annotations

from typing import Any

from kernellab.agents.model.options import Options
from kernellab.agents.model.prompts.assembly import Prompt, PromptError
from kernellab.errors import ModelError, ModelFault
from kernellab.models import Talk
from kernellab.models.exchanges import ChatMessage, Section
from kernellab.models.tokens import estimate

#: Faults after which the request is repeated once, with a note on brevity after a cut or empty reply.
_AGAIN = (ModelFault.TRUNCATED, ModelFault.EMPTY, ModelFault.FILTERED)
#: Share of its tokens to which a prompt that is too long is reduced, and how often.
_SMALLER, _TIMES_SMALLER = 0.6, 3
_SHORTER = (
    "Your last reply did not arrive complete: it reached the limit of its length, or was empty. Answer once more, "
    "without reasoning, in the shortest form that holds everything asked for."
)


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
        self._messages: tuple[ChatMessage, ...] = prompt.messages
        self._sections: tuple[Section, ...] = prompt.sections
        self._chances, self._smaller = 1, _TIMES_SMALLER
        #: The last reply's text, and whether the model repeated the one before.
        self.last, self.repeated = "", False

    def ask(self) -> str:
        """Return the reply to the prompt. Raises ModelError."""
        return self._text(self._prompt.purpose)

    def again(self, request: str, purpose: str) -> str:
        """Return the reply to ``request``, which follows the model's last reply. Raises ModelError.

        Only the last reply is included: earlier faulty ones would be imitated, and cost tokens.
        """
        last_text = self.last.strip()
        self._go_on(request)
        text = self._text(purpose)
        self.repeated = text.strip() == last_text
        return text

    def ask_json(self) -> dict[str, Any]:
        """Return the object that the prompt's schema describes. Raises ModelError."""
        while True:
            try:
                return self._json()
            except ModelError as error:
                self._shorten(error)

    def again_json(self, request: str) -> dict[str, Any]:
        """Like :meth:`again`, for an object of the prompt's schema."""
        self._go_on(request)
        return self.ask_json()

    def _assemble(self, budget: int, error: ModelError) -> None:
        """Assemble the prompt in fewer tokens; later messages stay. Raises ``error`` if no part can be shortened."""
        old_prompt = self._prompt
        try:
            self._prompt = old_prompt.within(budget)
        except PromptError as short:
            raise error from short
        later_messages, later_sections = (
            self._messages[len(old_prompt.messages) :],
            self._sections[len(old_prompt.sections) :],
        )
        self._messages = (*self._prompt.messages, *later_messages)
        self._sections = (*self._prompt.sections, *later_sections)

    def _go_on(self, request: str) -> None:
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

    def _text(self, purpose: str) -> str:
        while True:
            try:
                return self._once(purpose)
            except ModelError as error:
                self._shorten(error)

    def _once(self, purpose: str) -> str:
        reply = self._talk.ask(purpose, self._messages, self._sections, max_tokens=self._options.max_tokens)
        self.last = reply.text
        return self.last

    def _json(self) -> dict[str, Any]:
        prompt = self._prompt
        value, reply = self._talk.ask_json(
            prompt.purpose, self._messages, prompt.schema or {}, self._sections, prompt.schema_name,
            self._options.max_tokens,
        )  # fmt: skip
        self.last = reply.text
        return value

    def _shorten(self, error: ModelError) -> None:
        """Add a note on brevity, or use a smaller prompt if the last was too long. Raises ``error`` if another request
        would not help, or was made already."""
        if error.kind is ModelFault.CONTEXT and self._smaller:
            self._smaller -= 1
            self._assemble(int(_SMALLER * self._prompt.tokens), error)
            return
        if error.kind not in _AGAIN or not self._chances:
            raise error
        self._chances -= 1
        if error.kind is ModelFault.FILTERED:
            return  # a filter's decision may differ
        *earlier, last = self._messages
        message = ChatMessage(role=last.role, content=f"{last.content}\n\n{_SHORTER}")
        self._messages = (*earlier, message)
        self._sections = (*self._sections, Section(name="shorter", source="kernellab", tokens=estimate(_SHORTER)))
