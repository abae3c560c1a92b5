"""The Designer's prompt: the language, the machine, the bound, and the session's results so far."""

from __future__ import annotations

from kernellab.agents.briefs import DesignBrief, best_of
from kernellab.agents.model.options import Options
from kernellab.agents.model.prompts.assembly import Part, Prompt, assemble
from kernellab.agents.model.prompts.cost import cost_lines
from kernellab.agents.model.prompts.facts import bound_lines, hot_text, limit_lines, numbered
from kernellab.agents.model.prompts.history import history_part
from kernellab.agents.model.prompts.manual_edits import fastest_by_hand
from kernellab.agents.model.prompts.memory import design_parts
from kernellab.agents.model.prompts.quotes import OWN, Library, mistakes, on_cores
from kernellab.agents.model.prompts.templates import render
from kernellab.agents.rules.classify import ErrorClass
from kernellab.records import Author
from kernellab.target import Backend

_FILE = "prompts/designer.j2"


def design_prompt(brief: DesignBrief, library: Library, options: Options) -> Prompt:
    """Return everything that the Designer receives, in at most ``options.token_budget`` tokens.

    Raises:
        PromptError: the task and the sketch exceed the budget.
    """
    language = library.language(brief.target.chip.kind, brief.allow_library)
    language_text = on_cores(language.text) if brief.target.chip.kind == "cpu" else language.text
    chip, fast = library.chip(brief.target), library.fast(brief.target.dsl)
    faults = mistakes() if language.source == OWN else None
    is_gated = "gate" not in options.ablation | brief.ablation
    parts = [
        Part("role", _FILE, render("designer", "role", gated=is_gated), stable=True),
        Part("language", language.source, language_text, stable=True, rank=1, trims=True),
        *([Part("mistakes", faults.source, faults.text, stable=True, rank=8, trims=True)] if faults else []),
        Part(
            "what is fast", fast.source if fast else _FILE,
            render("designer", "fast", dsl=brief.target.dsl, kind=brief.target.chip.kind, fast=fast),
            stable=True, rank=6, trims=True,
        ),
        Part("answer", _FILE, render("designer", "answer"), stable=True),
        Part(
            "chip", chip.source, render(
                "designer", "chip", target=brief.target, facts=chip.text,
                interpreted=brief.target.backend is Backend.INTERPRETER,
            ),
            stable=True, rank=4, trims=True,
        ),
        *_task_parts(brief, library, options),
        *design_parts(brief),
        *_revision_parts(brief, hot_text(brief, options.ablation)),
        Part("go", _FILE, render("designer", "go")),
    ]  # fmt: skip
    return assemble(parts, options.token_budget, purpose="design")


def _task_parts(brief: DesignBrief, library: Library, options: Options) -> list[Part]:
    limits = limit_lines(brief)
    task = render("designer", "task", task=brief.task, limits=limits)
    parts = [Part("task", f"task {brief.task.hash[:8]}", task)]
    bound = "\n".join(bound_lines(brief))
    if brief.headroom is not None and (brief.route is None or brief.route.error_class != ErrorClass.PERFORMANCE.value):
        bound += f"\nSo far {brief.reached}."
    parts.append(Part("bound", "task shapes x chip facts", render("designer", "bound", bound=bound), rank=3))
    if "examples" not in options.ablation | brief.ablation:
        quotes = library.patterns(brief.task, brief.target.chip.kind)
        if quotes:
            sources = ", ".join(p.source for p in quotes)
            text = render("designer", "similar", passages=quotes)
            text = on_cores(text) if brief.target.chip.kind == "cpu" else text
            parts.append(Part("similar designs", sources, text, rank=7, trims=True))
    return parts


def _revision_parts(brief: DesignBrief, hot: list[str]) -> list[Part]:
    parts: list[Part] = []
    constexpr, cost = dict(brief.previous_constexpr), ""
    if brief.previous:
        cost = "\n".join(cost_lines(brief, brief.previous, constexpr, brief.route.suggestion if brief.route else ""))
        best = best_of(brief.history)
        is_earlier = best is not None and best.sketch == brief.previous and best.sketch != brief.history[-1].sketch
        text = render("designer", "previous", numbered=numbered(brief.previous), cost=cost, best=is_earlier)
        parts.append(Part("sketch so far", "the journal; kernellab.sketch.cost", text))
    if changed := fastest_by_hand(brief):
        lowered = best_of([a for a in brief.history if a.candidate and a.candidate.author is Author.RULES])
        text = render(
            "designer", "by_hand", diff=changed, best=best_of(brief.history), lowered=lowered, shown=brief.previous
        )
        parts.append(Part("changes by hand", "the journal", text, rank=6, trims=True))
    if hot:
        parts.append(Part("time", "the judge's samples", render("designer", "hot", lines=hot), rank=3))
    pins, requires = kept_lines(brief)
    if pins or requires:
        text = render("designer", "keep", pins=pins, requires=requires, constexpr=())
        parts.append(Part("pins and constraints", "the journal", text))
    if brief.history:
        last = brief.history[-1]
        # the route's evidence covers it; if it was not better, the evidence covers the round from which the work starts
        is_covered = brief.route is not None and (
            last.verdict is None or not last.verdict.passed or best_of(brief.history) is last
        )
        judged = last.verdict if is_covered else None
        parts.append(history_part("designer", brief.history, brief.route, judged))
    if brief.route is not None:
        is_slow = brief.route.error_class == ErrorClass.PERFORMANCE.value
        text = render("designer", "route", route=brief.route, performance=is_slow, costed=bool(cost))
        parts.append(Part("route", "the Conductor", text))
    if brief.notes:
        parts.append(Part("notes", "people and agents", render("designer", "notes", notes=brief.notes)))
    return parts


def kept_lines(brief: DesignBrief) -> tuple[list[str], list[str]]:
    """The lines that a person pinned in the sketch to revise, as they stand, and a person's ``require:`` lines."""
    lines = (brief.previous or "").splitlines()
    pinned = [lines[number - 1].strip() for number, _ in brief.held.lines(brief.previous or "")]
    return pinned or list(brief.pins), [f"require: {one.text};" for one in brief.held.constraints]
