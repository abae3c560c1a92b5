"""An operator in words becomes a task's text, for a person to read before it is used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernellab.notebook.config import KernelLab
from kernellab.records import Exchange, Role

if TYPE_CHECKING:
    from kernellab.agents.model.words import ProposedTask


def task_cell(words: str, name: str, spec: str, lab: KernelLab) -> ProposedTask:
    """Blocking: asks the model that ``spec`` names (model, model:NAME, replay:FILE).

    Raises:
        TaskError: no words, or no reply was a usable task.
        ModelError: the model is not configured or did not answer.
    """
    from kernellab.agents.model.words import task_from_words
    from kernellab.models import Budget, Talk, open_model
    from kernellab.session.config import model_settings

    # no session yet, so no journal: the exchange is not kept
    kept: list[Exchange] = []
    model = open_model(spec, Role.DESIGNER, None if spec.startswith("replay:") else model_settings())
    talk = Talk(model, Role.DESIGNER, kept.append, Budget.parse(lab.budget) if lab.budget else None)
    return task_from_words(words, talk, name)
