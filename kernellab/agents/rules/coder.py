"""The rules Coder: compiles a sketch to the target's DSL, always to the same text."""

from __future__ import annotations

from kernellab.agents.briefs import CodeBrief, CodeReply, RouteBrief
from kernellab.errors import KernellabError
from kernellab.lowering import lower
from kernellab.lowering.embedded_sketch import same_code
from kernellab.records import Author


class RulesCoder:
    """Lowers a sketch to a Source, for every DSL that has a lowering.

    A model or a person may do better; this Coder does not guess. After a code fault it lowers the given sketch again:
    it does not continue its own earlier code, or code that someone changed.
    """

    author = Author.RULES

    def code(self, brief: CodeBrief) -> CodeReply:
        """Bind the sketch to the task and lower it.

        Raises:
            SketchError: the sketch is invalid, or cannot be bound to the task.
            LoweringError: the DSL cannot express one of its statements (named, with the line).
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


def is_verbatim(brief: RouteBrief) -> bool:
    """Whether a candidate's code is byte for byte the lowering of its sketch; False without any of these.

    If so, the code has no fault: it computes what the sketch says. If the gate found the sketch right on its small
    sizes and the Verifier finds wrong numbers, the fault appears at sizes or values that the gate did not try (a carry
    between tiles, cancellation, overflow), and it is in the sketch.
    """
    if brief.candidate is None or not brief.sketch:
        return False
    code_brief = CodeBrief(brief.task, brief.target, brief.sketch, constexpr=brief.candidate.constexpr)
    try:
        return same_code(RulesCoder().code(code_brief).source, brief.candidate.source)
    except KernellabError:
        return False
