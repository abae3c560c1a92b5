"""Manual changes of code: its difference from the lowering of its sketch."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import unified_diff

from kernellab.agents.briefs import Brief, CodeBrief, DesignBrief, best_of
from kernellab.agents.model.prompts.helpers import is_helper
from kernellab.agents.model.prompts.marks import in_short
from kernellab.errors import KernellabError, counted
from kernellab.lowering.embedded_sketch import bare
from kernellab.records import Source

#: Maximum number of lines of a diff that a Designer sees: a kernel with a longer one was written from scratch.
_MOST = 60


def lowered_code(brief: CodeBrief) -> tuple[Source | None, str]:
    """Return the rules Coder's source for the brief, or the reason why there is none."""
    from kernellab.agents.rules.coder import RulesCoder

    try:
        return RulesCoder().code(brief).source, ""
    except KernellabError as error:
        return None, error.message  # the remedy is for a person


def diff_of(before: str, after: str, name: str) -> str:
    """The lines that differ, with two lines of context, like ``diff -U2``."""
    lines = unified_diff(before.splitlines(), after.splitlines(), f"{name} before", name, lineterm="", n=2)
    return "\n".join(lines)


def by_hand(
    brief: Brief,
    source: Source | None,
    sketch: str | None,
    constexpr: Mapping[str, int | float],
    shown: str | None = None,
) -> str:
    """The diff between the lowering of ``sketch`` and ``source``, file by file; empty if they cannot be compared. If
    the prompt shows ``sketch``, comments refer to its lines by number."""
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
    """The manual changes in the fastest kernel so far, in at most 60 lines; a long diff keeps only the new lines; empty
    if the kernel was lowered."""
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
    omitted = [f"({counted(len(lines) - len(new), 'line')} of before left out)"] if len(new) < len(lines) else []
    rest = [f"({counted(len(new) - _MOST, 'more line')})"] if len(new) > _MOST else []
    return "\n".join([*omitted, *new[:_MOST], *rest])
