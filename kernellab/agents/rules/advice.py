"""Suggestions for a failure: the line, the dimension, the size, and the concrete fix; and the facts behind a route.

The evidence decides, in this order: a compiler's line, a time limit, an error at a dimension's end
(:mod:`kernellab.agents.rules.edges`), the error's signature (``fixes``), the sizes at which the kernel is right
(``contrast``, which is said first). What changed since a kernel passed (``changes``) is added, except to a compiler's
line and to lost digits.
"""

from __future__ import annotations

from kernellab.agents.briefs import RouteBrief, reason_of
from kernellab.agents.rules.changes import changed_since_it_passed
from kernellab.agents.rules.classify import LATE, is_of_judge
from kernellab.agents.rules.contrast import contrast_lines, separation, sizes_text, smallest_of
from kernellab.agents.rules.edges import about_edge, accesses, program_of
from kernellab.agents.rules.fixes import fixes
from kernellab.errors import counted
from kernellab.records import Author, Evidence, GateState, RouteFact, RouteKind, Stage, Verdict
from kernellab.target import Backend
from kernellab.verifier.protocol.remedies import OWN_PART, lost_digits, right_with_own_inputs

#: For errors placed like a tail's, at sizes where other values are right.
_OF_VALUES = (
    "At these sizes it is right with the task's own inputs, so values decide: look for equal ones, large ones, small "
    "ones whose digits a difference loses, rounding next to a limit, and a pad or a mask's value that is not neutral."
)


def advise(brief: RouteBrief, to: RouteKind) -> str:
    """Return the suggestion for ``to``; never empty."""
    if brief.verdict is None:
        return _about_sketch(brief)
    evidence = brief.verdict.evidence or Evidence()
    text = _about_code(brief, brief.verdict, evidence)
    # the condition that separates right from wrong precedes a signature's suggestion
    text = " ".join(filter(None, (separation(evidence), text)))
    changed_places = changed_since_it_passed(brief)
    # a change of tiles also changes rounding
    if changed_places and not evidence.compiler and not lost_digits(evidence):
        more = f" and {counted(len(changed_places) - 1, 'more place')}" if len(changed_places) > 1 else ""
        text += f" Changed since it last passed: {changed_places[0]}{more}."
    if to is RouteKind.DESIGNER:
        if evidence.signature in LATE and not is_of_judge(evidence):
            return f"Revise the sketch for less work in a run: its code reached the judge's time limit. {text}"
        failed = sum(round.verdict is not None and not round.verdict.passed for round in brief.rounds)
        times = "failed" if failed < 2 else f"failed {failed} times"
        return f"Revise the sketch: the code made from it {times}. {text}"
    return text


def evidence_lines(brief: RouteBrief) -> list[str]:
    """The facts of the route, one per line."""
    return [fact.line for fact in route_facts(brief)]


def route_facts(brief: RouteBrief) -> list[RouteFact]:
    """The facts of the route."""
    facts = []
    if brief.gate is not None:
        place = "gate" if brief.gate.state is GateState.RIGHT else f"gate: {brief.gate.state.value}"
        facts.append(RouteFact(place=place, text=brief.gate.reason))
        facts += [
            RouteFact(place=f"sketch line {d.line}", code=d.code, text=d.message)
            for d in brief.gate.diagnostics[:5]
            if d.severity == "error" or follows_sketch(brief)
        ]
    if brief.error:
        facts.append(RouteFact(text=f"coder: {brief.error}"))
    verdict = brief.verdict
    if verdict is None:
        return facts
    facts += [RouteFact(text=f"changed since it last passed: {at}") for at in changed_since_it_passed(brief)[:5]]
    place = f"passed at {verdict.trust.value}" if verdict.passed else f"stage {verdict.stage.value}"
    facts.append(RouteFact(text=f"{place}: {reason_of(verdict)}", of_stage=True))
    evidence = verdict.evidence or Evidence()
    lines_not_in_reason = [line for line in evidence.compiler[:5] if line.message.rstrip(".") not in verdict.reason]
    facts += [RouteFact(text=f"{line.place}: {line.message}") for line in lines_not_in_reason]
    if evidence.sizes:
        facts += [RouteFact(text=text) for text in failing_case(verdict)]
    return (
        facts + [RouteFact(text=line) for line in contrast_lines(evidence)] + wrong_elements(evidence, verdict.reason)
    )


def wrong_elements(evidence: Evidence, reason: str) -> list[RouteFact]:
    """The first wrong element, or the largest error if no single element exceeds its limit; and the share of wrong
    elements, if the verdict's reason does not state it."""
    has_wrong_element = evidence.wrong_fraction != 0.0
    facts = []
    if evidence.first_wrong is not None:
        text = f"{'first wrong element' if has_wrong_element else 'largest error, at'} {evidence.first_wrong}"
        facts.append(RouteFact(text=text, got=evidence.got, want=evidence.want))
    if evidence.wrong_fraction is not None and not (has_wrong_element and " elements " in reason):
        share = f"wrong elements: {100 * evidence.wrong_fraction:.3g} %"
        facts.append(
            RouteFact(
                text=share if has_wrong_element else "no element alone is over its limit, the error as a whole is"
            )
        )
    return facts


def failing_case(verdict: Verdict) -> list[str]:
    """The sizes and the kind of inputs of the failing case, in a line; empty if the reason states them."""
    evidence = verdict.evidence
    if evidence is None or not evidence.sizes or sizes_text(evidence.sizes) in verdict.reason:
        return []
    kind = f"{_kind(evidence.family)} inputs" if evidence.family else ""
    # for a task without Dims, every case has the task's sizes
    is_fixed = any("." in name for name in evidence.sizes)
    description = ", ".join(filter(None, ["" if is_fixed else sizes_text(evidence.sizes), kind]))
    return [f"failing case: {description}"] if description else []


def _kind(family: str) -> str:
    return "the task's own" if family == "inputs" else family


def follows_sketch(brief: RouteBrief) -> bool:
    """Whether facts about the sketch apply to the code. Handwritten code may take other steps."""
    return brief.candidate is None or brief.candidate.author is Author.RULES


def _about_sketch(brief: RouteBrief) -> str:
    gate = brief.gate
    if brief.error:
        goal = "the sketch so that code can be made of it" if brief.sketch else "code that can be used"
        return f"Write {goal}: {brief.error}"
    if gate is None:
        return "Write a sketch for this task."
    for finding in gate.diagnostics:
        if finding.severity == "error":
            return f"Fix line {finding.line}: {finding.message} {finding.remedy}".strip()
    return (
        f"The sketch does not compute the reference: {gate.reason}" if gate.cases else f"Fix the sketch: {gate.reason}"
    )


def _about_code(brief: RouteBrief, verdict: Verdict, evidence: Evidence) -> str:
    if verdict.stage in (Stage.STATIC, Stage.BUILD) and evidence.compiler:
        compiler_line = evidence.compiler[0]
        sketch_line = _sketch_line(brief, compiler_line.file, compiler_line.line)
        origin = f" (made from sketch line {sketch_line})" if sketch_line else ""
        return f"Fix {compiler_line.place}{origin}."
    if is_of_judge(evidence):
        return (
            "The reference and the judge's other work, or other work on the machine, took the time: the code need not "
            "change, and the same code is verified once more."
        )
    if evidence.signature in LATE:
        return _about_time(brief)
    if evidence.signature in ("edge-tile", "mask-missing"):
        return _OF_VALUES if right_with_own_inputs(evidence) else about_edge(brief, evidence)
    first_access = next((access.words for access in accesses(brief)), "each load")
    if fix := fixes(evidence, brief.task, program_of(brief), first_access):
        return fix
    if right_with_own_inputs(evidence):
        return _OF_VALUES
    if evidence.signature in ("library", "library-call", "no-kernel"):
        return f"{OWN_PART}."
    if evidence.compiler:
        return f"Fix {evidence.compiler[0].place}."
    if separation(evidence):
        return ""  # the sizes say more, and the evidence contains the reason
    if evidence.first_wrong is not None:
        wrong = [case for case in evidence.tried if not case.right]
        sizes = smallest_of(wrong).sizes if wrong else {}
        where = f" at {sizes_text(sizes)}" if sizes else f" {evidence.first_wrong}"
        return f"Follow one wrong element{where} through the code, and compare each step with the reference's."
    return f"Fix what the {verdict.stage.value} stage found."


def _about_time(brief: RouteBrief) -> str:
    """Advice for a run that reached the judge's time limit: make it shorter, or make it end."""
    if brief.target.backend is Backend.INTERPRETER:
        return (
            "Triton's interpreter runs each program as Python, one after the other, so time there is the programs "
            "times the steps of each: wider tiles and fewer programs take less."
        )
    loops = "bound each loop by what it needs (a loaded position where that is the end), and see that it ends"
    return f"Where a loop runs over an extent and masks most of it, {loops}."


def _sketch_line(brief: RouteBrief, file: str, line: int | None) -> int | None:
    if brief.candidate is None or line is None:
        return None
    return brief.candidate.source.line_map.get(file, {}).get(line)
