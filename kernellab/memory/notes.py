"""Skills as Markdown, for a person to read, edit and approve. The measured effect and the links are fixed."""

from __future__ import annotations

import re

from kernellab.errors import MemoryStoreError
from kernellab.memory.records import Skill

_FORM = "A note has '# Advice', '# Change' and '# Measured', as `kernellab memory skills` writes it."
_PART = re.compile(r"^# (Advice|Change|Measured)\n(.*?)(?=^# (?:Advice|Change|Measured)$|\Z)", re.M | re.S)
_FENCE = re.compile(r"^(```+)diff\n(.*?)\n\1$", re.M | re.S)


def as_markdown(skill: Skill) -> str:
    """The note; a person may edit only the advice, the conditions and the change."""
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall(r"`+", skill.change)), default=0))
    state = "approved" if skill.approved else "proposed"
    return (
        f"---\nskill: {skill.id}\nstate: {state}\noperators: {skill.operator_class or 'all'}\n"
        f"dsl: {skill.dsl or 'all'}\nchip: {skill.chip or 'all'}\n---\n\n"
        f"# Advice\n\n{skill.advice.strip()}\n\n# Change\n\n{fence}diff\n"
        f"{skill.change.strip()}\n{fence}\n\n# Measured\n\n{skill.ratio:.3f}x [{skill.low:.3f}, {skill.high:.3f}], "
        f"from {skill.before} to {skill.after}.\n"
    )


def edited(text: str, skill: Skill, approve: bool) -> Skill:
    """Return ``skill`` with a person's edits. Raises MemoryStoreError if a part is missing or a figure was changed."""
    parts = dict(_PART.findall(text))
    if set(parts) != {"Advice", "Change", "Measured"} or not parts["Advice"].strip():
        raise MemoryStoreError(f"The note of the skill {skill.id} has a part missing.", _FORM)
    measured = as_markdown(skill).split("# Measured\n", 1)[1].strip()
    if parts["Measured"].strip() != measured:
        raise MemoryStoreError(
            f"The note of the skill {skill.id} states another effect than was measured.", f"Write: {measured}"
        )
    fields = dict(re.findall(r"^(operators|dsl|chip): (.+)$", text.split("# Advice")[0], re.M))
    change = _FENCE.search(parts["Change"])
    return skill.model_copy(
        update={
            "advice": " ".join(parts["Advice"].split()),
            "change": change[2] if change else parts["Change"].strip(),
            "operator_class": _named(fields.get("operators", skill.operator_class)),
            "dsl": _named(fields.get("dsl", skill.dsl)),
            "chip": _named(fields.get("chip", skill.chip)),
            "approved": approve or skill.approved,
        }
    )


def _named(word: str) -> str:
    return "" if word.strip() == "all" else word.strip()


__all__ = ["as_markdown", "edited"]
