"""What somebody changed by hand in code: how it differs from the lowering of the sketch that it was made from."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import unified_diff

from kernellab.agents.briefs import Brief, CodeBrief, DesignBrief, best_of
from kernellab.agents.model.prompts.helpers import is_helper
from kernellab.agents.model.prompts.marks import in_short
from kernellab.errors import KernellabError, counted
from kernellab.lowering.embedded_sketch import bare
from kernellab.records import Source

#: lines of a difference that a Designer is shown: where it is longer, the kernel was written from scratch
_MOST = 60


def lowered_code(brief: CodeBrief) -> tuple[Source | None, str]:
    """The rules Coder's source for the brief, or why there is none."""
    from kernellab.agents.rules.coder import RulesCoder

    try:
        return RulesCoder().code(brief).source, ""
    except KernellabError as error:
        return None, error.message  # its remedy is a person's


def diff_of(before: str, after: str, name: str) -> str:
    """The lines that differ, with two lines around them, as ``diff -U2`` shows them."""
    lines = unified_diff(before.splitlines(), after.splitlines(), f"{name} before", name, lineterm="", n=2)
    return "\n".join(lines)


def by_hand(
    brief: Brief,
    source: Source | None,
    sketch: str | None,
    constexpr: Mapping[str, int | float],
    shown: str | None = None,
) -> str:
    """How ``source`` differs from the lowering of ``sketch``, file by file; empty where nothing can be compared.
    Where the prompt shows ``sketch``, comments name its lines by number."""
    if source is None or sketch is None or source.dsl != brief.target.dsl:
        return ""
    lowered, _ = lowered_code(CodeBrief(brief.task, brief.target, sketch=sketch, constexpr=constexpr))
    if lowered is None:
        return ""
    rules = bare(lowered).files
    pairs = [(name, rules.get(name, ""), text) for name, text in sorted(bare(source).files.items())]
    if shown == sketch:
        pairs = [(name, in_short(name, old, sketch), in_short(name, new, sketch)) for name, old, new in pairs]
    return "\n".join(diff_of(old, new, name) for name, old, new in pairs if old != new and not is_helper(name))


def fastest_by_hand(brief: Brief) -> str:
    """What was changed by hand in the fastest kernel so far, in at most 60 lines: of a long difference those that are
    new; empty where it was lowered."""
    best = best_of(brief.history)
    candidate = best.candidate if best is not None else None
    previous = brief.previous if isinstance(brief, DesignBrief) else None
    lines = (
        by_hand(brief, candidate.source, candidate.sketch, candidate.constexpr, previous).splitlines()
        if candidate else []
    )  # fmt: skip
    if len(lines) <= _MOST:
        return "\n".join(lines)
    new = [line for line in lines if not line.startswith("-")]
    said = [f"({counted(len(lines) - len(new), 'line')} of before left out)"] if len(new) < len(lines) else []
    rest = [f"({counted(len(new) - _MOST, 'more line')})"] if len(new) > _MOST else []
    return "\n".join([*said, *new[:_MOST], *rest])
