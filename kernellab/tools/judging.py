"""Tools of a kernel's source: rank it, verify it, look at what the compiler made of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, Field

from kernellab.conditions import Mark, joined
from kernellab.errors import SessionError
from kernellab.records import Author, Ranking, Source, Stage, StageResult, StageState, Trust, Verdict
from kernellab.records.tried import Tried
from kernellab.tools.context import Context
from kernellab.tools.fitting import page_of
from kernellab.tools.records import Files, Page, Request, Result, Rounded, Sketch, ToolError
from kernellab.tools.tool import tool
from kernellab.verifier.protocol.remedies import OWN_PART, remedy

if TYPE_CHECKING:
    from kernellab.lens.records import Fact, Lens
    from kernellab.session import Turn
    from kernellab.session.record.events import Created
    from kernellab.target import Target
    from kernellab.task import Task

_TASK = "A task's Python file below the workspace, or the name of a session."
#: stages whose words count cases of the judge's
_OF_CASES = (Stage.SMOKE, Stage.CORRECT, Stage.ROBUST, Stage.HONEST)
#: seconds between two reports of a stage that still runs
_GOES_ON = 2.0
#: rows of an error map and lines of a compiler's log in a result
_ROWS = 16


class SourceRequest(Request):
    task: str = Field(description=_TASK)
    files: Files = Field(
        default_factory=dict, description="The kernel's files by name; kernel.py defines kernel(...) or ModelNew."
    )
    path: str = Field(default="", description="Or the kernel's file or folder below the workspace.")
    sketch: Sketch = Field(
        default="", description="Or a sketch: its code by the rules, in which `files` replace those of their names."
    )
    dsl: str = Field(default="", description="triton, cpp, cuda_c, tilelang ...; empty: detected.")
    allow_library: bool = Field(False, description="Accept a kernel that calls library operators.")


def source_of(context: Context, request: SourceRequest) -> Source:
    """The source of a request.

    Raises:
        ToolError: neither files, a sketch nor a path, or a path with one of them. KernellabError: a wrong sketch.
    """
    from kernellab.dsls.detect import dsl_of
    from kernellab.dsls.sources import source_endings, source_of_texts
    from kernellab.session.edits import edited
    from kernellab.tools.sketching import TaskSketchRequest, lowered
    from kernellab.verifier.protocol.option_words import plain_dsl

    if bool(request.files or request.sketch) == bool(request.path):
        raise ToolError("A kernel is files, a sketch with or without files, or a path.", "Give one of these.")
    if request.path:
        texts = context.read(request.path, source_endings(request.dsl or None))
        source = source_of_texts(Path(request.path), texts, request.dsl or None, plain_dsl())
    elif request.sketch:
        asked = TaskSketchRequest(task=request.task, sketch=request.sketch, dsl=request.dsl)
        written, _ = lowered(asked, context.task(request.task), context.target(request.dsl, request.task))
        source = edited(written, dict(request.files), written.dsl)
    else:
        dsl, base = request.dsl or dsl_of(request.files), context.base
        base = None if base is not None and dsl not in ("", None, base.dsl) else base
        source = edited(base, dict(request.files), dsl or plain_dsl())
    return source.model_copy(update={"origin": Author.MODEL})


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


class RankResult(Result):
    ranked: bool
    stage: str
    time_ms: Rounded | None
    speedup: Rounded | None = Field(description="Over eager, of a few paired calls.")
    flags: list[str]
    failure: Failure | None


@tool()
def rank_source(context: Context, request: SourceRequest) -> RankResult:
    """Look at a kernel for about a second: plain errors and a rough time. It is no verdict."""
    from kernellab.verifier import RankOptions

    task, source = context.task(request.task), source_of(context, request)
    options = RankOptions(allow_library=request.allow_library)
    target = context.target(source.dsl, request.task)
    context.progress("starts the judge where none is warm, builds the kernel and looks at it")
    found = context.judge().rank(task, source, target, options=options, cancel=context.cancel)
    return RankResult(
        summary=at_host(target, found.text or f"failed at {found.stage.value}: {_reason(task, found)}"),
        next="Verify it with verify_source." if found.ranked else "Fix what the failure shows.",
        ranked=found.ranked,
        stage=found.stage.value,
        time_ms=found.time.median_ms if found.time else None,
        speedup=found.paired.speedup if found.paired else None,
        flags=found.flags,
        failure=_failure(task, found, ""),
    )


class VerifyRequest(SourceRequest):
    level: Literal["T0", "T1", "T2", "T3"] = Field(
        "T2", description="T0 static only, T1 quick, T2 isolated, T3 sealed replay on a GPU."
    )
    compare_compile: bool = Field(False, description="Time it against torch.compile too.")


#: what a verdict of a lower level does not say
_LESS = {"T0": "Nothing of it was run", "T1": "Its time is of a quick look"}


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


@tool()
def verify_source(context: Context, request: VerifyRequest) -> VerifyResult:
    """Verify a kernel against a task: right, honest and fast, by a judge in another process. Seconds to a minute."""
    from kernellab.options.design import VerificationOptions
    from kernellab.verifier.protocol.option_words import verify_options

    task, source = context.task(request.task), source_of(context, request)
    asked = VerificationOptions(
        baseline=("eager", "compile") if request.compare_compile else ("eager",), level=request.level,
        allow_library=request.allow_library,
    )  # fmt: skip
    options = verify_options(asked, source.dsl)
    target = context.target(source.dsl, request.task)
    verdict = context.judge().verify(
        task, source, target, options=options, progress=_told(context), cancel=context.cancel
    )
    if context.bound is None and verdict.trust is not Trust.T0:
        # whoever calls a server is confined by no one
        marks = joined(verdict.conditions, [Mark(kind="agent-shared-machine")])
        verdict = verdict.model_copy(update={"conditions": marks})
    found = verdict_result(task, verdict)
    if found.passed and request.level in _LESS:
        found = found.model_copy(update={"next": f"{_LESS[request.level]}: verify_source with level T2."})
    if request.sketch and found.failure is not None and found.failure.reproduce:
        found = found.model_copy(update={"next": f"{found.next} {found.failure.reproduce}"})
    short = _short(request.level, verdict, target)
    return found.model_copy(update={"summary": " ".join(filter(None, (at_host(target, found.summary), short)))})


def _short(level: str, verdict: Verdict, target: Target) -> str:
    """Why a verdict that passed is less than was asked for; "" where it is not."""
    if not verdict.passed or verdict.trust.value >= level:
        return ""
    why = f"{target.chip.name} is no GPU" if target.chip.kind != "gpu" else verdict.label
    return f"{level}, a sealed replay on a GPU, was asked for: this verdict is {verdict.trust.value}, since {why}."


def at_host(target: Target, sentence: str) -> str:
    """The sentence, with the machine that judged where it is another one."""
    return f"Judged at {target.host}: {sentence}" if target.host else sentence


def _told(context: Context) -> Callable[[StageResult], None]:
    """Reports the stages as they begin and end, and a long one while it runs. The number of a case would tell which
    one failed, and what a stage says when it ends names the sizes that the judge drew."""
    last: tuple[Stage | None, StageState, float] = (None, StageState.NOT_REACHED, 0.0)

    def tell(part: StageResult) -> None:
        nonlocal last
        runs, now = part.state is StageState.RUNNING, time.monotonic()
        if runs and last[:2] == (part.name, part.state) and now - last[2] < _GOES_ON:
            return
        last = (part.name, part.state, now)
        if runs:
            note = "" if part.name in _OF_CASES else part.note
            words = f"{note} {part.seconds:.0f} s"
        else:
            words = part.state.value
        context.progress(f"{part.name.value} {words.strip()}")

    return tell


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
        f"{'; '.join(filter(None, [verdict.text, verdict.sol_text, _reason(task, verdict)]))}",
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
        failure=_failure(task, verdict, told_remedy(verdict)),
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
            verdict = verdict.model_copy(update={"reason": _reason(task, verdict)})
        if route is not None and quoted:
            route = route.model_copy(update={"reason": "", "suggestion": ""})
        told.append(turn.model_copy(update={"verdict": verdict, "route": route}))
    return told


def _is_drawn(task: Task, judged: Verdict | Ranking) -> bool:
    """Did it fail on a case that the judge drew: at other sizes than the task's own, or among the timed calls?"""
    sizes = judged.evidence.sizes if judged.evidence is not None else {}
    timed = judged.stage in (Stage.HONEST, Stage.FAST)
    return timed or (bool(sizes) and dict(sizes) != dict(task.module().default_sizes()))


def _reason(task: Task, judged: Verdict | Ranking) -> str:
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


def _failure(task: Task, judged: Verdict | Ranking, remedy: str) -> Failure | None:
    evidence = judged.evidence
    if evidence is None:
        return None
    shown = not _is_drawn(task, judged)
    own = shown and bool(evidence.sizes)
    constant = [one for one in evidence.tried if one.contents]
    tried = [*constant, *(one for one in evidence.tried if not one.contents)][:_ROWS]
    # of a case of another family the first is the task's own inputs at the drawn sizes
    listed = [one for one in tried if shown or one.contents or dict(one.sizes) != dict(evidence.sizes or {})]
    compiler = [f"{line.place}: {line.message}" if shown else line.place for line in evidence.compiler[:_ROWS]]
    return Failure(
        signature=evidence.signature or "",
        at_own_sizes=own,
        family=evidence.family or "" if shown else "",
        first_wrong=list(evidence.first_wrong or []) if own else [],
        got=str(evidence.got) if shown and evidence.got is not None else "",
        want=str(evidence.want) if shown and evidence.want is not None else "",
        wrong_fraction=evidence.wrong_fraction if shown else None,
        error_map=evidence.error_map[:_ROWS] if shown else [],
        tried=[one.words for one in listed],
        reproduce=next((_again(task, one) for one in listed if not one.right), ""),
        compiler=compiler,
        remedy=remedy,
    )


def _again(task: Task, one: Tried) -> str:
    """How to see a case that is public again: its sizes, and the contents that held one number."""
    sizes = f"sizes={dict(one.sizes)}" if task.dims else ""
    contents = f"contents={dict(one.contents)}" if one.contents else ""
    given = ", ".join(filter(None, (sizes, contents)))
    return (
        f"Of a sketch, run_sketch{f' with {given}' if given else ''} shows an element next to the reference's. "
        f"Of code, verify_source tries these {'contents' if contents else 'sizes'} after each wrong answer."
    )


class LensRequest(SourceRequest):
    chip: str = Field(default="", description="The GPU to compile for: h100, a100 ...; empty: this machine's.")
    level: str = Field(default="", description="A text to show: ttir, ttgir, llir, ptx, sass, gimple, asm.")
    before: Files = Field(
        default_factory=dict, description="An earlier kernel's files: what differs is shown, of `level` or the source."
    )
    counters: bool = Field(
        False, description="Read the GPU's counters of a run too, where the person has allowed runs with their rights."
    )
    page: int = Field(default=1, ge=1)


class Figure(BaseModel):
    name: str
    value: str
    sentence: str
    kernel: str = ""


class LensResult(Result):
    target: str
    facts: list[Figure]
    levels: list[str]
    text: Page | None
    notes: list[str]
    changed: dict[str, list[str]] = Field(
        default_factory=dict, description="Facts that differ from `before`: the value there, and here."
    )


@tool()
def lens(context: Context, request: LensRequest) -> LensResult:
    """Show what the compiler made of a kernel: registers, spills, vector width, one text, or what differs."""
    from kernellab.lens.difference import SOURCE, difference

    found = _look(context, request)
    level = found.level(request.level) if request.level else None
    if request.level and level is None:
        raise ToolError(f"There is no level {request.level!r} here.", f"Levels: {', '.join(found.names)}.")
    text, changed, notes = level.text if level is not None else "", {}, list(found.notes)
    counted = _counters(context, request, notes) if request.counters else []
    facts = [*found.facts, *counted]
    if request.before:
        earlier = _look(context, request.model_copy(update={"files": request.before, "path": ""}))
        differs = difference(earlier, found, request.level or SOURCE, ("before", "now"))
        text, changed = differs.text, {fact.name: [fact.a, fact.b] for fact in differs.facts}
    summary = f"For {found.target}: " + "; ".join(f"{f.name} {f.value}" for f in facts[:8]) + "."
    if request.counters and not counted:
        summary = f"{summary} No counters: the notes say why."
    more = found.names and level is None and not request.before
    return LensResult(
        summary=f"{summary} Nothing differs." if request.before and not text and not changed else summary,
        next=f"level={found.names[-1]} shows that text." if more else "", target=found.target, levels=found.names,
        facts=[Figure(name=f.name, value=f.value, sentence=f.sentence, kernel=f.kernel) for f in facts],
        text=page_of(text, request.page) if text else None, notes=notes, changed=changed,
    )  # fmt: skip


def _counters(context: Context, request: LensRequest, notes: list[str]) -> list[Fact]:
    """The counters of a run, with the person's consent; why there are none goes into ``notes``."""
    from kernellab.lens.counters.read import counters

    host = context.target("", request.task).host
    if host:
        notes.append(f"Counters are read on this machine alone, and {host} judges.")
        return []
    try:
        return counters(source_of(context, request), context.task(request.task), context.unsandboxed)
    except SessionError as error:
        notes.append(str(error))
        return []


def _look(context: Context, request: LensRequest) -> Lens:
    from kernellab.dsls.machine import named_chip
    from kernellab.lens import look

    source, chip = source_of(context, request), named_chip(request.chip) if request.chip else None
    at = context.target("", request.task)
    if chip is None and source.dsl != "cpp" and at.chip.kind == "gpu":
        chip = at.chip  # of the session, which may judge elsewhere
    if chip is not None and (chip.kind == "gpu") == (source.dsl == "cpp"):
        where = "this machine's CPU" if source.dsl == "cpp" else "a GPU"
        raise ToolError(f"{source.dsl} is compiled for {where}, and {chip.name} is not one.", "Leave out chip.")
    return look(source, context.task(request.task), chip)
