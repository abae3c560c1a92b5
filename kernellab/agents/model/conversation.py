"""One turn's conversation with a model: the first request, then what went back to it, each an Exchange."""

from __future__ import annotations

from typing import Any

from kernellab.agents.model.options import Options
from kernellab.agents.model.prompts.assembly import Prompt, PromptError
from kernellab.errors import ModelError, ModelFault
from kernellab.models import Talk
from kernellab.models.exchanges import ChatMessage, Section
from kernellab.models.tokens import estimate

#: a reply that ended like this is asked for once more, with a word on brevity where it was cut or empty
_AGAIN = (ModelFault.TRUNCATED, ModelFault.EMPTY, ModelFault.FILTERED)
#: a prompt that is too long for the model is assembled again in this share of its tokens, so often
_SMALLER, _TIMES_SMALLER = 0.6, 3
_SHORTER = (
    "Your last reply did not arrive complete: it reached the limit of its length, or was empty. Answer once more, "
    "without reasoning, in the shortest form that holds everything asked for."
)


#: of a model that is asked to correct its reply and gives it again: asked once more it would do the same
REPEATS = "The model gave the same reply again when it was asked to correct it."
REPEATED_REMEDY = (
    "Leave the role a note on what is wrong, or give the role to another model, the rules or a person; "
    "a higher temperature under [models] may help."
)


class Conversation:
    """Requests that begin with the same prompt, so that a server's cache of it serves all of them.

    A cut, empty or filtered reply is asked for once more in a turn; it is never read as an answer.
    """

    def __init__(self, talk: Talk, prompt: Prompt, options: Options) -> None:
        self._talk, self._prompt, self._options = talk, prompt, options
        self._messages: tuple[ChatMessage, ...] = prompt.messages
        self._sections: tuple[Section, ...] = prompt.sections
        self._chances, self._smaller = 1, _TIMES_SMALLER
        #: the last reply's text, and whether the model gave the one before it again
        self.last, self.repeated = "", False

    def ask(self) -> str:
        """The reply to the prompt itself. Raises ModelError."""
        return self._text(self._prompt.purpose)

    def again(self, request: str, purpose: str) -> str:
        """The reply to ``request``, which answers the model's last reply. Raises ModelError.

        Only that reply is kept in sight: faulty ones before it would be imitated, and cost tokens.
        """
        before = self.last.strip()
        self._go_on(request)
        text = self._text(purpose)
        self.repeated = text.strip() == before
        return text

    def ask_json(self) -> dict[str, Any]:
        """The object that the prompt's schema asks for. Raises ModelError."""
        while True:
            try:
                return self._json()
            except ModelError as error:
                self._shorten(error)

    def again_json(self, request: str) -> dict[str, Any]:
        """As :meth:`again`, for an object that the prompt's schema asks for."""
        self._go_on(request)
        return self.ask_json()

    def _assemble(self, budget: int, error: ModelError) -> None:
        """The prompt in fewer tokens; what followed it stays. Raises ``error`` where its parts cannot give way."""
        before = self._prompt
        try:
            self._prompt = before.within(budget)
        except PromptError as short:
            raise error from short
        after, told = self._messages[len(before.messages) :], self._sections[len(before.sections) :]
        self._messages = (*self._prompt.messages, *after)
        self._sections = (*self._prompt.sections, *told)

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
        """Adds a word on brevity, or takes a smaller prompt where the last was too long; raises ``error`` where another
        request would not help, or was made already."""
        if error.kind is ModelFault.CONTEXT and self._smaller:
            self._smaller -= 1
            self._assemble(int(_SMALLER * self._prompt.tokens), error)
            return
        if error.kind not in _AGAIN or not self._chances:
            raise error
        self._chances -= 1
        if error.kind is ModelFault.FILTERED:
            return  # a filter does not always decide alike
        *before, last = self._messages
        said = ChatMessage(role=last.role, content=f"{last.content}\n\n{_SHORTER}")
        self._messages = (*before, said)
        self._sections = (*self._sections, Section(name="shorter", source="kernellab", tokens=estimate(_SHORTER)))
