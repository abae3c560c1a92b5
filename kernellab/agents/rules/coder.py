"""The rules Coder: compiles a sketch to the target's DSL, the same text every time."""

from __future__ import annotations

from kernellab.agents.briefs import CodeBrief, CodeReply
from kernellab.lowering import lower
from kernellab.lowering.embedded_sketch import same_code
from kernellab.records import Author


class RulesCoder:
    """Sketch -> Source by lowering alone, for every DSL that has one.

    A model or a person may do better; this one does not guess. After a code fault it lowers the sketch it is given
    again: its own earlier code, or code that somebody else changed, is not carried on.
    """

    author = Author.RULES

    def code(self, brief: CodeBrief) -> CodeReply:
        """The sketch bound to the task and lowered.

        Raises:
            SketchError: the sketch is wrong, or cannot be bound to the task.
            LoweringError: the DSL cannot express a statement of it (named, with the line).
        """
        from kernellab.sketch.check import load_program
        from kernellab.sketch.program.bind import bind

        program = load_program(brief.sketch)
        binding = bind(program, brief.task, dict(brief.constexpr), brief.target)
        source = lower(program, binding, brief.target)
        tunables = {c.name: binding.constexpr[c.name] for c in program.tunables}
        chosen = ", ".join(f"{name} = {value}" for name, value in tunables.items())
        rationale = f"Lowered from the sketch to {brief.target.dsl}{f' with {chosen}' if chosen else ''}."
        if brief.previous is not None and same_code(brief.previous, source):
            rationale += " The code is the same as before: what is wrong lies in the sketch or in the lowering."
        return CodeReply(source, {**brief.constexpr, **tunables}, rationale)
