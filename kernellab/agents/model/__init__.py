"""The roles that a chat model plays, their prompts, and the same prompts for a person.

A role is made from a :class:`kernellab.models.Talk` and :class:`kernellab.knowledge.Knowledge`; it follows the same
protocol as its rules variant (:mod:`kernellab.agents.briefs`). To change a model's prompt, edit
``agents/model/templates/<role>.j2``; to add a section, add a block there and a Part in ``prompts/``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kernellab.agents.model.analyst import ModelAnalyst as ModelAnalyst
    from kernellab.agents.model.coder import ModelCoder as ModelCoder
    from kernellab.agents.model.conductor import ModelConductor as ModelConductor
    from kernellab.agents.model.designer import ModelDesigner as ModelDesigner
    from kernellab.agents.model.human import parse_answer as parse_answer
    from kernellab.agents.model.human import prompt as prompt
    from kernellab.agents.model.lifting import lift as lift
    from kernellab.agents.model.options import Options as Options
    from kernellab.agents.model.prompts.assembly import Prompt as Prompt
    from kernellab.agents.model.prompts.assembly import brief_text as brief_text
    from kernellab.agents.model.reply.answers import AnswerError as AnswerError
    from kernellab.agents.model.reply.claims import check_claims as check_claims
    from kernellab.agents.model.task_from_text import task_from_words as task_from_words

_MODULES = {
    "AnswerError": "reply.answers",
    "ModelAnalyst": "analyst",
    "ModelCoder": "coder",
    "ModelConductor": "conductor",
    "ModelDesigner": "designer",
    "Options": "options",
    "Prompt": "prompts.assembly",
    "brief_text": "prompts.assembly",
    "check_claims": "reply.claims",
    "lift": "lifting",
    "parse_answer": "human",
    "prompt": "human",
    "task_from_words": "task_from_text",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
