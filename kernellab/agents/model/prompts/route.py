"""The Conductor's prompt: the evidence, the rules' route, and earlier attempts."""

from __future__ import annotations

from typing import Any

from kernellab.agents.briefs import NOTHING, RouteBrief
from kernellab.agents.model.options import Options
from kernellab.agents.model.prompts.assembly import Part, Prompt, assemble
from kernellab.agents.model.prompts.cost import cost_lines
from kernellab.agents.model.prompts.facts import bound_lines, hot_text, numbered, verdict_figures
from kernellab.agents.model.prompts.helpers import is_helper
from kernellab.agents.model.prompts.history import history_part
from kernellab.agents.model.prompts.marks import in_short
from kernellab.agents.model.prompts.quotes import Library
from kernellab.agents.model.prompts.templates import render
from kernellab.agents.model.prompts.verdict import error_map, log_end
from kernellab.agents.rules.advice import evidence_lines, follows_sketch
from kernellab.agents.rules.classify import ErrorClass
from kernellab.agents.rules.performance import is_best
from kernellab.lowering.embedded_sketch import bare
from kernellab.records import Route, RouteKind, Source

_FILE = "prompts/conductor.j2"

ROUTE_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "to": {"type": "string", "enum": [k.value for k in RouteKind]},
        "error_class": {"type": "string", "enum": [c.value for c in ErrorClass]},
        "reason": {"type": "string"},
        "suggestion": {"type": "string"},
    },
    "required": ["to", "error_class", "reason", "suggestion"],
    "additionalProperties": False,
}


def route_prompt(brief: RouteBrief, rules: Route, library: Library, options: Options) -> Prompt:
    """Return everything that the Conductor receives; ``rules`` is the route from the evidence only.

    Raises:
        PromptError: the evidence does not fit into the budget.
    """
    verdict = brief.verdict
    map_text, log = (error_map(verdict), log_end(verdict)) if verdict else ("", "")
    lines = evidence_lines(brief)
    full, short = (
        render("conductor", "evidence", lines=lines, error_map=m, log=end) for m, end in ((map_text, log), ("", ""))
    )
    parts = [
        Part("role", _FILE, render("conductor", "role"), stable=True),
        Part("answer", _FILE, render("conductor", "answer"), stable=True),
        Part("task", f"task {brief.task.hash[:8]}", render("conductor", "task", task=brief.task, target=brief.target)),
        Part("evidence", "the Verifier and the sketch gate", full, rank=1, shorter=(short,), trims=True),
    ]
    figures = performance_lines(brief, options.ablation, rules.suggestion)
    if figures:
        text = render("conductor", "figures", figures="\n".join(f"- {f}" for f in figures))
        parts.append(Part("figures", "the Verifier; kernellab.sketch.cost", text, rank=2, trims=True))
    if brief.sketch:
        text = render("conductor", "sketch", numbered=numbered(brief.sketch))
        parts.append(Part("sketch", "the Designer", text, rank=4, trims=True))
    if brief.candidate is not None:
        own_files = _own_files(brief.candidate.source)
        files = [(n, numbered(in_short(n, t, brief.sketch or ""))) for n, t in own_files]
        parts.append(Part("code", "the Coder", render("conductor", "code", files=files), rank=6, trims=True))
    parts.append(Part("rules", "kernellab.agents.rules.conductor", render("conductor", "rules", route=rules), rank=3))
    if brief.history:
        parts.append(history_part("conductor", brief.rounds, judged=brief.verdict))
    go = render("conductor", "go", turns_left=brief.turns_left, budget_left=brief.budget_left)
    notes = render("conductor", "notes", notes=brief.notes) if brief.notes else ""
    parts += [Part("notes", "people and agents", notes), Part("go", _FILE, go)]
    return assemble(parts, options.token_budget, purpose="route", schema=ROUTE_SCHEMA, schema_name="route")


def _own_files(source: Source) -> list[tuple[str, str]]:
    """The files that contain the kernel; a lowered source's host code is the same for every kernel."""
    files = sorted((n, t) for n, t in bare(source).files.items() if not is_helper(n))
    kernels = [(n, t) for n, t in files if n != source.entry_file]
    return kernels if kernels and source.line_map else files


def performance_lines(brief: RouteBrief, without: frozenset[str] = NOTHING, told: str = "") -> list[str]:
    """For a kernel that passed: its figures, the bound, and where its time and the sketch's bytes go."""
    verdict = brief.verdict
    if verdict is None or not verdict.passed:
        return []
    lines = verdict_figures(verdict)
    if brief.headroom is not None and not is_best(brief):
        lines.append(f"so far {brief.reached}")
    lines += (*bound_lines(brief), *hot_text(brief, without))
    if brief.sketch and follows_sketch(brief):
        constexpr = brief.candidate.constexpr if brief.candidate else {}
        lines += [line.removeprefix("- ") for line in cost_lines(brief, brief.sketch, constexpr, told)]
    return lines
