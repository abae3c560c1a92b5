"""Memory entries as sections of a prompt: each names its entry and score, and quotes it as data.

An entry's text may come from anyone. Names and reasons are one line each, and texts are in a fence that none of their
lines can close, after a sentence that they are not instructions. Results are verified like any other.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from kernellab.agents.briefs import CodeBrief, DesignBrief, Recalled, Remembered
from kernellab.agents.model.prompts.assembly import Part
from kernellab.agents.model.prompts.templates import fence, render

#: Maximum number of quoted lines of a text.
_LINES = 160
_LONG = 300
_MAIN = (".cpp", ".cu", ".py")
_LANGUAGES = {".cpp": "cpp", ".cu": "cuda", ".py": "python"}


@dataclass(frozen=True)
class _Quoted:
    """An entry prepared for the template."""

    name: str
    why: str
    score: float
    logic: float
    shape: float
    value: float
    stale: str
    fence: str
    sketch: str = ""
    constexpr: tuple[tuple[str, int | float], ...] = ()
    text: str = ""
    language: str = ""


@dataclass(frozen=True)
class _Change:
    reason: str
    change: str
    speedup: float | None
    fence: str


def design_parts(brief: DesignBrief) -> list[Part]:
    """Sketches of remembered kernels and approved advice."""
    quoted = [_quoted(k, k.sketch, sketch=True) for k in brief.recalled.kernels if k.sketch]
    parts = [
        Part("remembered designs", _sources(brief.recalled), render("memory", "designs", kernels=quoted), 7, trims=True)
    ] if quoted else []  # fmt: skip
    return [*parts, *_skills(brief.recalled)]


def code_parts(brief: CodeBrief) -> list[Part]:
    """The nearest remembered kernel's code, fixes of failures like the last one, and approved advice."""
    recalled = brief.recalled
    quoted = [_quoted(k, *_main(k)) for k in recalled.kernels if k.source is not None and k.dsl == brief.target.dsl]
    parts = [Part("remembered kernel", _sources(recalled), render("memory", "code", kernels=quoted), 7, trims=True)]
    cures = [_Change(line(c.reason), _cut(c.change), c.speedup, fence(c.change)) for c in recalled.cures]
    source = "memory: " + ", ".join(c.id for c in recalled.cures)
    fixes = [Part("known fix", source, render("memory", "cures", cures=cures), 5, trims=True)] if cures else []
    return [*(parts if quoted else []), *fixes, *_skills(recalled)]


def line(text: str) -> str:
    """An entry's text as one line that is not a heading, list or fence."""
    flat = re.sub(r"\s+", " ", text).strip()
    return re.sub(r"^[#>`\-*\s]+", "", flat).replace("```", "'''")[:_LONG]


def _quoted(kernel: Remembered, text: str, language: str = "", sketch: bool = False) -> _Quoted:
    body = _cut(text)
    return _Quoted(
        line(kernel.name), line(kernel.why), kernel.score, kernel.logic, kernel.shape, kernel.value, line(kernel.stale),
        fence(body), body if sketch else "", tuple(sorted(kernel.constexpr.items())), "" if sketch else body, language,
    )  # fmt: skip


def _main(kernel: Remembered) -> tuple[str, str]:
    """The file that contains the kernel, and its language."""
    files = kernel.source.files if kernel.source else {}
    name = next((n for suffix in _MAIN for n in sorted(files) if n.endswith(suffix)), "")
    return files.get(name, ""), _LANGUAGES.get("." + name.rpartition(".")[2], "")


def _cut(text: str) -> str:
    lines = text.strip().splitlines()
    return "\n".join(lines[:_LINES] + (["(the rest is left out)"] if len(lines) > _LINES else []))


def _sources(recalled: Recalled) -> str:
    return ", ".join(f"memory: {k.id} (score {k.score:.2f})" for k in recalled.kernels)


def _skills(recalled: Recalled) -> list[Part]:
    if not recalled.skills:
        return []
    skills = [
        {"advice": line(s.advice), "ratio": s.ratio, "low": s.low, "high": s.high} for s in recalled.skills
    ]  # fmt: skip
    source = "memory: " + ", ".join(s.id for s in recalled.skills)
    return [Part("measured advice", source, render("memory", "skills", skills=skills), 7, trims=True)]


__all__ = ["code_parts", "design_parts", "fence", "line"]
