"""A verdict as an agent sees it.

A case that the judge drew stays the judge's: an agent that knew its sizes, seeds or contents could write a kernel that
is right there alone. Such a failure is named by its signature; what was tried afterwards with public contents is shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, Field

from kernellab.records import Evidence, Ranking, Stage, Verdict
from kernellab.records.tried import Tried
from kernellab.tools.records import Result, Rounded
from kernellab.verifier.protocol.remedies import OWN_PART, remedy

if TYPE_CHECKING:
    from kernellab.session import Turn
    from kernellab.session.record.events import Created
    from kernellab.task import Task

#: rows of an error map and lines of a compiler's log in a result
_ROWS = 16


class Failure(BaseModel):
    """What a failed stage saw. Sizes, seeds and contents that the judge drew are not in it."""

    signature: str = ""
    at_own_sizes: bool = Field(False, description="Did it fail at the sizes of the task's own inputs?")
    family: str = ""
    first_wrong: list[int] = Field(default_factory=list)
    got: str = ""
    want: str = ""
    wrong_fraction: Rounded | None = None
    error_map: list[str] = Field(default_factory=list)
    tried: list[str] = Field(
        default_factory=list,
        description="Small cases and constant contents that were tried afterwards; none is the judge's own.",
    )
    reproduce: str = Field(default="", description="How to see one of these again with the tools.")
    compiler: list[str] = Field(default_factory=list)
    remedy: str = ""


class Ratio(BaseModel):
    baseline: str
    speedup: Rounded
    low: Rounded
    high: Rounded
    baseline_ms: Rounded


class VerifyResult(Result):
    passed: bool
    stage: str
    trust: str
    label: str
    flags: list[str]
    time_ms: Rounded | None
    ratios: list[Ratio]
    bound_ms: Rounded | None
    bound_share: Rounded | None
    own_share: Rounded | None
    failure: Failure | None


def verdict_result(task: Task, verdict: Verdict) -> VerifyResult:
    """A verdict as an agent sees it."""
    eager = verdict.against("eager")
    if verdict.advice:
        following = f"{verdict.advice} Improve it, or measure again when the machine is quiet."
    elif eager is not None and not eager.distinguishable:
        following = "No faster than eager as measured: improve it, or measure again when the machine is quiet."
    else:
        following = "Submit it to a session, or improve it."
    return VerifyResult(
        summary=f"{verdict.outcome}, {verdict.trust.value}: "
        f"{'; '.join(filter(None, [verdict.text, verdict.sol_text, told_reason(task, verdict)]))}",
        next=following if verdict.passed else told_remedy(verdict) or "Fix what the failure shows.",
        passed=verdict.passed,
        stage=verdict.stage.value,
        trust=verdict.trust.value,
        label=verdict.label,
        flags=list(verdict.flags),
        time_ms=verdict.time.median_ms if verdict.time else None,
        ratios=[
            Ratio(baseline=c.baseline, speedup=c.speedup, low=c.low, high=c.high, baseline_ms=c.baseline_time.median_ms)
            for c in verdict.comparisons
        ],
        bound_ms=verdict.sol_ms,
        bound_share=verdict.bound_share,
        own_share=verdict.own_share,
        failure=failure_of(task, verdict, told_remedy(verdict)),
    )


#: remedies that name what a shell gives, as a caller of tools has it
_OF_LIBRARY = f"{OWN_PART}; allow_library=true accepts the framework's work, labelled so."
_OF_TOOLS = {
    "library": _OF_LIBRARY, "library-call": _OF_LIBRARY, "no-kernel": _OF_LIBRARY,
    "close": "Multiply in full float32 (no TF32), or state the framework's precision in the task.",
    "deadline": "Do less work in a call, and compile less: a verification has a limit of time.",
    "baseline": "Run the reference by itself, and leave compare_compile out.",
}  # fmt: skip


def told_remedy(verdict: Verdict) -> str:
    """What a caller of tools may do about a verdict that refuses; "" where it passed or nothing is known."""
    signature = verdict.evidence.signature if verdict.evidence is not None else None
    known = remedy(verdict)
    return _OF_TOOLS.get(signature or "", known) if known else ""


def told_turns(created: Created, turns: Sequence[Turn]) -> list[Turn]:
    """The turns as an agent sees them: without what the judge drew, also where a route quotes it."""
    from kernellab.task import load_task

    told, quoted = [], False
    for turn in turns:
        verdict, route = turn.verdict, turn.route
        if verdict is not None and not verdict.passed:
            task = load_task(created.text, created.name)
            quoted = _is_drawn(task, verdict)
            verdict = verdict.model_copy(update={"reason": told_reason(task, verdict)})
        if route is not None and quoted:
            route = route.model_copy(update={"reason": "", "suggestion": ""})
        told.append(turn.model_copy(update={"verdict": verdict, "route": route}))
    return told


def _is_drawn(task: Task, judged: Verdict | Ranking) -> bool:
    """Did it fail on a case that the judge drew: at other sizes than the task's own, or among the timed calls?"""
    sizes = judged.evidence.sizes if judged.evidence is not None else {}
    timed = judged.stage in (Stage.HONEST, Stage.FAST)
    return timed or (bool(sizes) and dict(sizes) != dict(task.module().default_sizes()))


def told_reason(task: Task, judged: Verdict | Ranking) -> str:
    """Why it failed. A case that the judge drew is named by its signature: sizes, values and what the kernel itself
    says there would tell the case."""
    evidence = judged.evidence
    if evidence is None:
        return judged.reason
    constant = next((one.words for one in evidence.tried if one.contents), "")
    also = f" With constant contents, which are public: {constant}." if constant else ""
    if not _is_drawn(task, judged):
        return judged.reason + also
    at = f" at {evidence.compiler[0].place}" if evidence.compiler else ""
    return f"{evidence.signature or 'wrong'}{at}, on a case that the judge drew.{also}"


def failure_of(task: Task, judged: Verdict | Ranking, remedy: str) -> Failure | None:
    """What a failed stage saw, as far as it is the caller's to know; None where it left no evidence."""
    evidence = judged.evidence
    if evidence is None:
        return None
    is_public = not _is_drawn(task, judged)
    tried = _public_cases(evidence, is_public)
    return Failure(
        signature=evidence.signature or "",
        tried=[one.words for one in tried],
        reproduce=next((_again(task, one) for one in tried if not one.right), ""),
        compiler=[f"{line.place}: {line.message}" if is_public else line.place for line in evidence.compiler[:_ROWS]],
        remedy=remedy,
        **(_public_facts(evidence) if is_public else {}),
    )


def _public_facts(evidence: Evidence) -> dict[str, Any]:
    """Fields of a failure that would tell a case that the judge drew."""
    at_own_sizes = bool(evidence.sizes)
    return {
        "at_own_sizes": at_own_sizes, "family": evidence.family or "",
        "first_wrong": list(evidence.first_wrong or []) if at_own_sizes else [],
        "got": "" if evidence.got is None else str(evidence.got),
        "want": "" if evidence.want is None else str(evidence.want),
        "wrong_fraction": evidence.wrong_fraction, "error_map": evidence.error_map[:_ROWS],
    }  # fmt: skip


def _public_cases(evidence: Evidence, is_public: bool) -> list[Tried]:
    """Cases that were tried after the failure, those of constant contents first."""
    constant = [one for one in evidence.tried if one.contents]
    tried = [*constant, *(one for one in evidence.tried if not one.contents)][:_ROWS]
    # of a case of another family the first is the task's own inputs at the drawn sizes
    return [one for one in tried if is_public or one.contents or dict(one.sizes) != dict(evidence.sizes or {})]


def _again(task: Task, one: Tried) -> str:
    """How to see a case that is public again: its sizes, and the contents that held one number."""
    sizes = f"sizes={dict(one.sizes)}" if task.dims else ""
    contents = f"contents={dict(one.contents)}" if one.contents else ""
    given = ", ".join(filter(None, (sizes, contents)))
    return (
        f"Of a sketch, run_sketch{f' with {given}' if given else ''} shows an element next to the reference's. "
        f"Of code, verify_source tries these {'contents' if contents else 'sizes'} after each wrong answer."
    )
