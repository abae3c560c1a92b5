"""The practice ground: every task of the built-in suite as a challenge, with staged hints and a kernel to beat.

The Verifier draws the sizes and seeds itself, so that nothing of them can be learned from here. A grade says how much
of the bound a kernel reaches; where there is no reliable bound, how it compares with the rules' kernel.
"""

from __future__ import annotations

import difflib
import time
from dataclasses import dataclass, replace
from functools import lru_cache

from kernellab.agents.briefs import CodeBrief, DesignBrief
from kernellab.agents.rules.coder import RulesCoder
from kernellab.agents.rules.designer import RulesDesigner
from kernellab.bench.suites import SuiteTask, load_suite
from kernellab.errors import CourseError, KernellabError, counted
from kernellab.records import Source, Trust, Verdict
from kernellab.sketch.check import load_program
from kernellab.sketch.syntax import tree
from kernellab.sketch.syntax.parse import parse
from kernellab.sketch.syntax.printer import format
from kernellab.target import Target
from kernellab.task import Task, load_task
from kernellab.teach.exercise import Goals
from kernellab.teach.goals import facts
from kernellab.teach.judge import Outcome, Reached, is_sketch, judge_sketch, source_of
from kernellab.teach.measure import least_bytes
from kernellab.teach.progress import Tried, text_hash
from kernellab.verifier import Verifier
from kernellab.verifier.protocol.options import VerifyOptions

#: what the rules' kernel is called in a verdict's figures
RULES = "rules"
#: share of the bound, or of the rules' speed where there is no bound -> grade
GRADES = ((0.75, "A"), (0.5, "B"), (0.25, "C"), (0.0, "D"))
_LEFT_OUT = tree.Name("...")


@dataclass(frozen=True)
class Opponent:
    """What the rules make of a task; ``why_not`` where they make nothing."""

    sketch: str = ""
    source: Source | None = None
    why_not: str = ""


@lru_cache(maxsize=1)
def challenges() -> tuple[SuiteTask, ...]:
    """All of them, in order of category and name."""
    return tuple(load_suite("builtin"))


def challenge(name: str) -> SuiteTask:
    """The challenge ``NAME`` or ``CATEGORY/NAME``.

    Raises:
        CourseError: there is none, or several have the name.
    """
    matches = [t for t in challenges() if name in (t.name, f"{t.category}/{t.name}")]
    if len(matches) == 1:
        return matches[0]
    if matches:
        full_names = ", ".join(f"{t.category}/{t.name}" for t in matches)
        raise CourseError(f"{len(matches)} challenges are called {name!r}.", f"Write one of {full_names}.")
    names = list(dict.fromkeys(t.name for t in challenges()))
    near = difflib.get_close_matches(name.rpartition("/")[2], names, 3)
    remedy = f"Did you mean {' or '.join(near)}?" if near else "%kernel_challenge lists them."
    raise CourseError(f"There is no challenge {name!r}.", remedy)


def task_of(suite_task: SuiteTask) -> Task:
    """The challenge's Task."""
    return load_task(suite_task.text, suite_task.name)


def opponent(task: Task, target: Target) -> Opponent:
    """The rules' kernel for the task on ``target``, made once."""
    key = task.hash, target.dsl, target.chip.name
    if key not in _opponents:
        _opponents[key] = _designed_by_rules(task, target)
    return _opponents[key]


#: (task, DSL, chip) -> what the rules made
_opponents: dict[tuple[str, str, str], Opponent] = {}


def _designed_by_rules(task: Task, target: Target) -> Opponent:
    """What the rules make of the task; the reason where they make nothing."""
    try:
        design = RulesDesigner().design(DesignBrief(task, target))
        code = RulesCoder().code(CodeBrief(task, target, design.sketch, constexpr=dict(design.constexpr)))
    except KernellabError as error:
        return Opponent(why_not=error.message)
    return Opponent(design.sketch, code.source)


def hints(task: Task, target: Target) -> tuple[str, ...]:
    """From what limits the operator to the outline of the rules' sketch; never its expressions."""
    rival = opponent(task, target)
    least = least_bytes(task)
    sentences = [
        f"It takes {task.signature}. At the task's own sizes its inputs and outputs are {least / 1e6:.3g} MB: the time "
        "of moving these once is what a kernel can hope for where arithmetic is cheap."
    ]
    if not rival.sketch:
        return (*sentences, f"The rules have no kernel for it: {rival.why_not}")
    program = load_program(rival.sketch)
    sketch_facts = facts(program, task)
    if sketch_facts is not None:
        least_traffic = sketch_facts.least_bytes
        intensity = sketch_facts.flops / least_traffic if least_traffic else 0.0
        chip = target.chip
        ridge = chip.peak_flops.get("f32", 0.0) / chip.bandwidth if chip.bandwidth else 0.0
        limit = "" if not ridge else f" (the roof bends near {ridge:.0f})"
        sentences.append(
            f"The rules' kernel does {intensity:.2g} operations for each byte that has to move{limit}. It makes "
            f"{counted(sketch_facts.launches, 'sketch', 'sketches')} of it, a launch each, and names "
            f"{sketch_facts.traffic:.2g} times the bytes of the inputs and outputs."
        )
    sentences.append(f"The outline of the rules' sketch, without its expressions:\n{outline(rival.sketch)}")
    return tuple(sentences)


def outline(sketch: str) -> str:
    """Declarations, loops, loads and stores, with ``...`` in place of the expressions that are computed and stored."""
    bare = tuple(
        replace(one, body=_without(one.body), comments=tree.NO_COMMENTS, trailing=()) for one in parse(sketch).sketches
    )
    return format(tree.SketchFile(bare))


def _without(body: tuple[tree.Stmt, ...]) -> tuple[tree.Stmt, ...]:
    return tuple(map(_outlined, body))


def _outlined(stmt: tree.Stmt) -> tree.Stmt:
    match stmt:
        case tree.For():
            return replace(stmt, body=_without(stmt.body), comments=tree.NO_COMMENTS)
        case tree.If():
            return replace(stmt, then=_without(stmt.then), orelse=_without(stmt.orelse), comments=tree.NO_COMMENTS)
        case tree.Assign(value=tree.Call(func="alloc")):
            return replace(stmt, comments=tree.NO_COMMENTS)
        case tree.Assign():
            return replace(stmt, value=_LEFT_OUT, comments=tree.NO_COMMENTS)
        case tree.Move() if stmt.op != "load":
            return replace(stmt, source=_LEFT_OUT, comments=tree.NO_COMMENTS)
    return stmt


@dataclass(frozen=True)
class Result:
    """One try: how far it came, its grade ("" where it did not pass), and the figures."""

    outcome: Outcome
    grade: str
    why: str


def attempt(
    text: str, task: Task, target: Target, verifier: Verifier, level: Trust = Trust.T2, dsl: str | None = None
) -> Result:
    """Judges ``text`` as a whole, timed against eager and the rules' kernel.

    Raises:
        VerifierError, TargetError: it cannot be judged here.
    """
    if is_sketch(text):
        outcome, program = judge_sketch(text, task, Goals())
        if program is None:
            return Result(outcome, "", outcome.sentence)
    try:
        source = source_of(text, task, dsl)
    except KernellabError as error:
        return Result(Outcome(Reached.UNREADABLE, str(error), ("lowering", "check")), "", str(error))
    rival = opponent(task, target) if source.dsl == target.dsl else Opponent()
    rivals = {RULES: rival.source} if rival.source is not None else {}
    verdict = verifier.verify(task, source, target, options=VerifyOptions(level=level, rivals=rivals))
    if not verdict.passed:
        signature = verdict.evidence.signature if verdict.evidence else None
        keys = tuple(filter(None, (signature, verdict.stage.value, "refused")))
        return Result(Outcome(Reached.REFUSED, verdict.reason, keys, verdict=verdict), "", verdict.reason)
    letter, why = graded(verdict)
    return Result(Outcome(Reached.PASSED, verdict.reason, verdict=verdict), letter, why)


def graded(verdict: Verdict) -> tuple[str, str]:
    """The grade of a passed verdict, and what it rests on."""
    share = verdict.bound_share
    if share is not None:
        why = f"{100 * share:.0f}% of the bound"
    else:
        comparison = verdict.against(RULES) or verdict.against("eager")
        if comparison is None:
            return "D", "it was not timed"
        share = 0.75 * comparison.speedup  # as fast as the rules' kernel is an A
        why = f"no reliable bound here, {comparison.speedup:.2f}x {comparison.baseline}"
    return next(letter for least, letter in GRADES if share >= least), why


def line_of(suite_task: SuiteTask, text: str, result: Result) -> Tried:
    """The try as a line of the journal."""
    verdict = result.outcome.verdict
    rules = verdict.against(RULES) if verdict is not None else None
    return Tried(
        task=f"{suite_task.category}/{suite_task.name}", text=text_hash(text), passed=result.outcome.reached.good,
        grade=result.grade, trust=result.outcome.trust.value if result.outcome.trust else "",
        ms=verdict.time.median_ms if verdict is not None and verdict.time is not None else None,
        share=verdict.bound_share if verdict is not None else None,
        speedup=verdict.speedup if verdict is not None else None, over_rules=rules.speedup if rules else None,
        keys=result.outcome.keys, time=time.time(),
    )  # fmt: skip
