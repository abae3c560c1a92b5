"""Tools of a kernel's source: rank it, verify it, look at what the compiler made of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from pydantic import BaseModel, Field

from kernellab.conditions import Mark, joined
from kernellab.errors import SessionError
from kernellab.records import Author, Source, Stage, StageResult, StageState, Trust, Verdict
from kernellab.tools.context import Context
from kernellab.tools.records import Files, Page, Request, Result, Rounded, Sketch, ToolError
from kernellab.tools.results.fitting import page_of
from kernellab.tools.results.verdict import Failure, VerifyResult, failure_of, told_reason, verdict_result
from kernellab.tools.tool import tool

if TYPE_CHECKING:
    from kernellab.lens.records import Fact, Lens
    from kernellab.target import Target

_TASK = "A task's Python file below the workspace, or the name of a session."
#: stages whose words count cases of the judge's
_OF_CASES = (Stage.SMOKE, Stage.CORRECT, Stage.ROBUST, Stage.HONEST)
#: seconds between two reports of a stage that still runs
_REPORT_SECONDS = 2.0


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
    ranking = context.judge().rank(task, source, target, options=options, cancel=context.cancel)
    return RankResult(
        summary=at_host(target, ranking.text or f"failed at {ranking.stage.value}: {told_reason(task, ranking)}"),
        next="Verify it with verify_source." if ranking.ranked else "Fix what the failure shows.",
        ranked=ranking.ranked,
        stage=ranking.stage.value,
        time_ms=ranking.time.median_ms if ranking.time else None,
        speedup=ranking.paired.speedup if ranking.paired else None,
        flags=ranking.flags,
        failure=failure_of(task, ranking, ""),
    )


class VerifyRequest(SourceRequest):
    level: Literal["T0", "T1", "T2", "T3"] = Field(
        "T2", description="T0 static only, T1 quick, T2 isolated, T3 sealed replay on a GPU."
    )
    compare_compile: bool = Field(False, description="Time it against torch.compile too.")


#: what a verdict of a lower level does not say
_LESS = {"T0": "Nothing of it was run", "T1": "Its time is of a quick look"}


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
        task, source, target, options=options, progress=_stage_reporter(context), cancel=context.cancel
    )
    if context.bound is None and verdict.trust is not Trust.T0:
        # whoever calls a server is confined by no one
        marks = joined(verdict.conditions, [Mark(kind="agent-shared-machine")])
        verdict = verdict.model_copy(update={"conditions": marks})
    result = verdict_result(task, verdict)
    if result.passed and request.level in _LESS:
        result = result.model_copy(update={"next": f"{_LESS[request.level]}: verify_source with level T2."})
    if request.sketch and result.failure is not None and result.failure.reproduce:
        result = result.model_copy(update={"next": f"{result.next} {result.failure.reproduce}"})
    short = _short(request.level, verdict, target)
    return result.model_copy(update={"summary": " ".join(filter(None, (at_host(target, result.summary), short)))})


def _short(level: str, verdict: Verdict, target: Target) -> str:
    """Why a verdict that passed is less than was asked for; "" where it is not."""
    if not verdict.passed or verdict.trust.value >= level:
        return ""
    why = f"{target.chip.name} is no GPU" if target.chip.kind != "gpu" else verdict.label
    return f"{level}, a sealed replay on a GPU, was asked for: this verdict is {verdict.trust.value}, since {why}."


def at_host(target: Target, sentence: str) -> str:
    """The sentence, with the machine that judged where it is another one."""
    return f"Judged at {target.host}: {sentence}" if target.host else sentence


class _Reported(NamedTuple):
    """The last report of a stage, and when it was made."""

    stage: Stage | None
    state: StageState
    at: float


def _stage_reporter(context: Context) -> Callable[[StageResult], None]:
    """Reports the stages as they begin and end, and a long one while it runs. The number of a case would tell which
    one failed, and what a stage says when it ends names the sizes that the judge drew."""
    last = _Reported(None, StageState.NOT_REACHED, 0.0)

    def tell(part: StageResult) -> None:
        nonlocal last
        is_running, now = part.state is StageState.RUNNING, time.monotonic()
        is_same = (last.stage, last.state) == (part.name, part.state)
        if is_running and is_same and now - last.at < _REPORT_SECONDS:
            return
        last = _Reported(part.name, part.state, now)
        if is_running:
            note = "" if part.name in _OF_CASES else part.note
            words = f"{note} {part.seconds:.0f} s"
        else:
            words = part.state.value
        context.progress(f"{part.name.value} {words.strip()}")

    return tell


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

    shown = _look(context, request)
    level = shown.level(request.level) if request.level else None
    if request.level and level is None:
        raise ToolError(f"There is no level {request.level!r} here.", f"Levels: {', '.join(shown.names)}.")
    text, changed, notes = level.text if level is not None else "", {}, list(shown.notes)
    counted = _counters(context, request, notes) if request.counters else []
    facts = [*shown.facts, *counted]
    if request.before:
        earlier = _look(context, request.model_copy(update={"files": request.before, "path": ""}))
        differs = difference(earlier, shown, request.level or SOURCE, ("before", "now"))
        text, changed = differs.text, {fact.name: [fact.a, fact.b] for fact in differs.facts}
    summary = f"For {shown.target}: " + "; ".join(f"{f.name} {f.value}" for f in facts[:8]) + "."
    if request.counters and not counted:
        summary = f"{summary} No counters: the notes say why."
    more = shown.names and level is None and not request.before
    return LensResult(
        summary=f"{summary} Nothing differs." if request.before and not text and not changed else summary,
        next=f"level={shown.names[-1]} shows that text." if more else "", target=shown.target, levels=shown.names,
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
