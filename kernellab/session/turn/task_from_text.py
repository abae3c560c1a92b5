"""Writes a task file from a description, for a person to approve before the design begins."""

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
    """A task file that a model wrote; ``exchanges`` go into the session that begins with it (``asked``)."""

    name: str
    text: str
    #: The task's weaknesses as a test of kernels, in sentences.
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
    """Write a task file for an operator described in words, with the model ``spec`` (model, model:NAME, replay:FILE).

    Raises:
        SessionError: no model is configured.
        TaskError: no reply contained a file for which a kernel could be designed.
        ModelError: the request to the model failed.
    """
    from kernellab.agents.model import task_from_words

    place = workspace or find_workspace()
    spec = next(filter(is_model, players_of(spec)), spec)
    try:
        model = open_model(spec, Role.DESIGNER, None if spec.startswith("replay:") else model_settings(place))
    except ModelError as error:
        raise SessionError(error.message, error.remedy) from None
    exchanges: list[Exchange] = []
    talk = Talk(model, Role.DESIGNER, exchanges.append, Budget.parse(budget), cancel)
    task_name = name or name_of(words)
    task_file = task_from_words(words, talk, task_name)
    return Proposal(task_name, task_file.text, task_file.flags, tuple(exchanges))


def name_of(words: str) -> str:
    """Return a session's name from the first words of a description."""
    all_words = re.findall(r"[a-z][a-z0-9]*", words.lower())
    main_words = [
        word for word in all_words if word not in ("a", "an", "the", "of", "over", "and", "with", "in", "for", "each")
    ]
    return "_".join(main_words[:3]) or "operator"
