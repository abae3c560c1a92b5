"""From words to a task file that a person approves before anything is designed for it."""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass
from pathlib import Path

from kernellab.agents.roles import is_model, players_of
from kernellab.errors import ModelError, SessionError
from kernellab.models import Budget, Talk, open_model
from kernellab.models.exchanges import Exchange
from kernellab.records import Role
from kernellab.session.config import model_settings
from kernellab.session.record.journal import find_workspace


@dataclass(frozen=True)
class Proposal:
    """A task file that a model wrote; ``exchanges`` go into the session that is begun with it (``asked``)."""

    name: str
    text: str
    #: what is weak about it as a test of kernels, in sentences
    flags: tuple[str, ...]
    exchanges: tuple[Exchange, ...]


def propose_task(
    words: str,
    spec: str = "model",
    name: str | None = None,
    workspace: Path | None = None,
    budget: str = "",
    cancel: threading.Event | None = None,
) -> Proposal:
    """A task file for an operator described in words, by the model ``spec`` (model, model:NAME, replay:FILE).

    Raises:
        SessionError: no model is configured.
        TaskError: no reply gave a file that a kernel could be designed for.
        ModelError: the model could not be asked.
    """
    from kernellab.agents.model import task_from_words

    place = workspace or find_workspace()
    spec = next(filter(is_model, players_of(spec)), spec)
    try:
        model = open_model(spec, Role.DESIGNER, None if spec.startswith("replay:") else model_settings(place))
    except ModelError as error:
        raise SessionError(error.message, error.remedy) from None
    said: list[Exchange] = []
    talk = Talk(model, Role.DESIGNER, said.append, Budget.parse(budget), cancel)
    word = name or name_of(words)
    found = task_from_words(words, talk, word)
    return Proposal(word, found.text, found.flags, tuple(said))


def name_of(words: str) -> str:
    """A session's name from the first words of a description."""
    found = re.findall(r"[a-z][a-z0-9]*", words.lower())
    kept = [word for word in found if word not in ("a", "an", "the", "of", "over", "and", "with", "in", "for", "each")]
    return "_".join(kept[:3]) or "operator"
