"""A model in front of which stand the replies that the journal already holds, so that nothing is asked twice."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from kernellab.exchanges import Exchange, Finish, Usage
from kernellab.models import ChatModel, ChatReply, ChatRequest, ModelError, ModelFault, Price, Replay, ReplayModel
from kernellab.records import Role


class Resumed:
    """Answers a request as ``answered`` did where it is the same one, in their order; others go to ``model``."""

    def __init__(self, model: ChatModel, role: Role, answered: Sequence[Exchange]) -> None:
        self._model = model
        whole = tuple(exchange for exchange in answered if exchange.finish is Finish.STOP)
        self._earlier = ReplayModel(Replay(Path("journal"), "", (), "", whole), role, by_place=False)
        self._from_journal = False

    @property
    def name(self) -> str:
        return self._model.name

    @property
    def price(self) -> Price | None:
        return self._model.price

    @property
    def prompt_tokens(self) -> int | None:
        return getattr(self._model, "prompt_tokens", None)

    @property
    def free(self) -> bool:
        return self._model.free

    def ask(
        self,
        request: ChatRequest,
        *,
        cancel: threading.Event | None = None,
        on_text: Callable[[str], None] | None = None,
    ) -> ChatReply:
        """See :meth:`kernellab.models.ChatModel.ask`. A reply of the journal costs nothing more."""
        self._from_journal = False
        try:
            reply = self._earlier.ask(request, cancel=cancel, on_text=on_text)
        except ModelError as error:
            if error.kind is not ModelFault.NO_ANSWER:
                raise
            return self._model.ask(request, cancel=cancel, on_text=on_text)
        self._from_journal = True
        return replace(reply, usage=Usage(), seconds=0.0)

    def recording(self, record: Callable[[Exchange], None]) -> Callable[[Exchange], None]:
        """``record`` for the exchanges that are not in the journal yet."""

        def only_new(exchange: Exchange) -> None:
            if not self._from_journal:
                record(exchange)

        return only_new
