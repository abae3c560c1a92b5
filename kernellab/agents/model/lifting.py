"""Turns an external kernel into a sketch of the same design, which the gate checks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernellab.agents.briefs import DesignBrief, DesignReply
from kernellab.agents.model.conversation import Conversation
from kernellab.agents.model.designer import gate_sketch, sketch_by
from kernellab.agents.model.options import Options
from kernellab.agents.model.prompts.assembly import Part, Prompt, assemble
from kernellab.agents.model.prompts.quotes import Library
from kernellab.agents.model.prompts.templates import render
from kernellab.errors import DesignError
from kernellab.lowering.embedded_sketch import bare
from kernellab.records import GateState, Source
from kernellab.target import Target
from kernellab.task import Task

if TYPE_CHECKING:
    from kernellab.knowledge import Knowledge
    from kernellab.models import Talk


def lift_prompt(source: Source, task: Task, library: Library, options: Options) -> Prompt:
    """The language's reference, the task and the external kernel. Raises PromptError if they do not fit."""
    language = library.language()
    kernel = render("lift", "kernel", source=source, files=sorted(bare(source).files.items()))
    parts = [
        Part("role", "prompts/lift.j2", render("lift", "role"), stable=True),
        Part("language", language.source, language.text, stable=True, rank=1, trims=True),
        Part("answer", "prompts/lift.j2", render("lift", "answer"), stable=True),
        Part("task", f"task {task.hash[:8]}", render("designer", "task", task=task, limits=())),
        Part("kernel", "the given source", kernel),
    ]
    return assemble(parts, options.token_budget, purpose="lift")


def lift(
    source: Source, task: Task, target: Target, talk: Talk, knowledge: Knowledge | None = None,
    options: Options | None = None,
) -> DesignReply:  # fmt: skip
    """Return a sketch with the design of ``source``, right on the gate's sizes of ``task``.

    Raises:
        DesignError: no sketch within the repairs that the gate accepts (names its last finding).
        ModelError: the request failed.
        PromptError: the kernel does not fit into the budget.
    """
    options = options or Options()
    brief = DesignBrief(task=task, target=target)
    conversation = Conversation(talk, lift_prompt(source, task, Library(knowledge), options), options)
    reply = sketch_by(conversation, conversation.ask(), brief, options)
    gate = gate_sketch(reply.sketch, task, target, dict(reply.constexpr))
    if gate.state is GateState.WRONG:
        raise DesignError(
            f"The sketch that was lifted from the kernel is wrong: {gate.reason}",
            "Fix it by hand, or give the lifting to another model.",
        )
    return reply
