"""Tools of the sketch language: check, run, gate, cost, lower."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import BaseModel, Field

from kernellab.errors import KernellabError, NotRunnable, SketchError, counted, kilobytes
from kernellab.records import Diagnostic, GateState, Source
from kernellab.tools.context import Context
from kernellab.tools.describing import DSL, ROUGH, TASK
from kernellab.tools.records import Page, Request, Result, Rounded, Sketch, ToolError
from kernellab.tools.results.fitting import page_of
from kernellab.tools.tool import tool

if TYPE_CHECKING:
    from kernellab.sketch.program.program import Program
    from kernellab.target import Target
    from kernellab.task import Task


class SketchRequest(Request):
    sketch: Sketch = Field(description="The sketch's text.")
    constexpr: dict[str, int | float] = Field(default_factory=dict, description="Values of its constexprs by name.")
    dsl: str = Field(default="", description=DSL)


class TaskSketchRequest(SketchRequest):
    task: str = Field(description=TASK)


def _program(request: SketchRequest) -> tuple[Program, str]:
    """The sketch's program, and what is to be said of the values of its constexprs.

    Raises:
        SketchError: the sketch is wrong, or has no constexpr of a name that is given a value.
    """
    from kernellab.sketch.check import load_program
    from kernellab.sketch.program.bind import check_constexprs

    program = load_program(request.sketch)
    return program, check_constexprs(program, request.constexpr)


class Finding(BaseModel):
    line: int
    code: str
    severity: str
    message: str
    remedy: str = ""


class CheckResult(Result):
    ok: bool
    findings: list[Finding]


class CheckRequest(SketchRequest):
    task: str = Field(
        default="",
        description=f"{TASK} Its arguments and outputs are those of the sketch; its session's chip bounds the memory.",
    )


@tool()
def check_sketch(context: Context, request: CheckRequest) -> CheckResult:
    """Check a sketch: syntax, shapes, races, bounds and memory, each finding with its line and remedy."""
    from kernellab.sketch.check import check
    from kernellab.sketch.program.bind import check_constexprs

    task = context.task(request.task) if request.task else None  # refused where there is none
    target = context.target(request.dsl, request.task) if request.dsl or request.task else None
    found = check(request.sketch, chip=target.chip if target else None, constexpr=request.constexpr)
    unlisted = check_constexprs(found.program, request.constexpr) if found.program is not None else ""
    findings, ok = _findings(found.diagnostics), found.ok
    if ok and task is not None and found.program is not None:
        misfits = _misfits(found.program, task, request.constexpr, target)
        findings, ok = misfits + findings, not misfits
    warnings = [one for one in findings if one.severity == "warning"]
    at = ", ".join(dict.fromkeys(f"line {one.line}" for one in warnings))
    warned = f", with {counted(len(warnings), 'warning')} at {at}" if warnings else ""
    legal = f"The sketch is legal{warned}." if ok else f"The sketch has {counted(len(findings), 'finding')}."
    look = "Look at what the findings warn of, and compare" if warnings else "Compare"
    return CheckResult(
        summary=f"{legal} {unlisted}".strip(),
        next=f"{look} it with the reference: gate_sketch." if ok else "Fix the lines that the findings name.",
        ok=ok,
        findings=findings,
    )


def _misfits(program: Program, task: Task, constexpr: dict[str, int | float], target: Target | None) -> list[Finding]:
    """Why the sketch's tensors are not those of the task; a constexpr without a value is no misfit."""
    from kernellab.sketch.program.bind import bind

    try:
        bind(program, task, constexpr, target)
    except NotRunnable:
        return []
    except SketchError as error:
        head = Finding(line=1, code="", severity="error", message=error.message, remedy=error.remedy)
        return _findings(error.diagnostics) or [head]
    return []


def _findings(diagnostics: list[Diagnostic] | tuple[Diagnostic, ...]) -> list[Finding]:
    return [
        Finding(line=d.line, code=d.code, severity=d.severity, message=d.message, remedy=d.remedy)
        for d in list(diagnostics)[:20]
    ]


class GateResult(Result):
    state: str = Field(description="right, wrong, or why it was not run.")
    sizes: dict[str, int] = Field(description="Sizes of the first case that is wrong.")
    contents: dict[str, float] = Field(
        default_factory=dict, description="Its tensors that held one number throughout: run_sketch takes them, too."
    )
    cases: int
    findings: list[Finding]


@tool()
def gate_sketch(context: Context, request: TaskSketchRequest) -> GateResult:
    """Run a sketch on small ragged shapes against the task's reference in float64, before any code exists."""
    from kernellab.sketch.check import check
    from kernellab.sketch.gate import gate
    from kernellab.sketch.program.bind import check_constexprs

    checked = check(request.sketch)
    unlisted = check_constexprs(checked.program, request.constexpr) if checked.program is not None else ""
    found = gate(request.sketch, context.task(request.task), constexpr=request.constexpr)
    right = found.state is GateState.RIGHT
    return GateResult(
        summary=f"{found.state.value}: {found.reason} {unlisted}".strip(),
        next="Lower it with lower_sketch, or submit it to a session."
        if right
        else f"Fix the sketch, not the code.{' run_sketch shows an element of that case.' if found.sizes else ''}",
        state=found.state.value,
        sizes=found.sizes,
        contents=found.contents,
        cases=found.cases,
        findings=_findings(found.diagnostics),
    )


class ElementRequest(TaskSketchRequest):
    tensor: str = Field(default="", description="An out tensor of the sketch; empty: its first.")
    element: list[int] = Field(
        default_factory=list, description="The element's index; empty: the first wrong one, else the first."
    )
    sizes: dict[str, int] = Field(
        default_factory=dict, description="Sizes of the case, such as those that gate_sketch gives; empty: a small one."
    )
    contents: dict[str, float] = Field(
        default_factory=dict, description="Tensors to fill with one number, such as {'x': 0}; others are drawn."
    )


class ElementResult(Result):
    tensor: str
    element: list[int]
    value: str = Field(description="What the sketch computes.")
    reference: str
    right: bool
    stored: bool = Field(description="Did the sketch store to it?")
    wrong: int = Field(description="Wrong elements of the tensor.")
    elements: int
    contents: dict[str, float] = Field(description="Tensors that hold one number throughout.")
    dtype: str = Field(description="In which both were computed: float64 where the reference has that.")
    sizes: dict[str, int]


@tool()
def run_sketch(context: Context, request: ElementRequest) -> ElementResult:
    """Run a sketch on one small case and show what it computes for an element, next to the reference's value."""
    from kernellab.sketch.gate import outputs

    task, (program, unlisted) = context.task(request.task), _program(request)
    case, found = outputs(program, task, request.sizes, request.constexpr, contents=request.contents)
    name = request.tensor or next(iter(found))
    if name not in found:
        raise ToolError(f"The sketch has no output {name!r}.", f"Its outputs: {', '.join(found)}.")
    one = found[name]
    shape, wrong = list(one.want.shape), int(one.wrong.sum())
    first = (one.wrong if wrong else one.stored).nonzero()[:1].tolist()
    at = tuple(request.element or (first[0] if first else [0] * len(shape)))
    if len(at) != len(shape) or not all(0 <= n < size for n, size in zip(at, shape, strict=True)):
        raise ToolError(f"{name} has no element {list(at)}.", f"Its shape at {case.at}: {shape}.")
    values = (one.got[at].item(), one.want[at].item())
    value, wanted = (f"{v:.17g}" if isinstance(v, float) else str(v) for v in values)
    stored, right = bool(one.stored[at]), bool(one.stored[at] & ~one.wrong[at])
    state = "right" if right else "wrong" if stored else "it is not among the iterations that were run"
    return ElementResult(
        summary=f"{name}{list(at)} at {case.at}: {value}, the reference {wanted}: {state}. "
        f"{wrong} of {counted(one.want.numel(), 'element')} wrong. {unlisted}".strip(),
        next="Fix what writes this element." if wrong else "gate_sketch tries all of its sizes.",
        tensor=name, element=list(at), value=value, reference=wanted, right=right, stored=stored, wrong=wrong,
        elements=one.want.numel(), dtype=str(one.want.dtype).removeprefix("torch."), sizes=dict(case.sizes),
        contents=dict(request.contents),
    )  # fmt: skip


class CostRequest(TaskSketchRequest):
    sizes: dict[str, int] = Field(default_factory=dict, description="Sizes of Dims; empty: the task's own.")


class CostResult(Result):
    time_ms: Rounded | None = Field(description="Roofline estimate on this chip.")
    bound_by: str
    rough: bool = Field(description="The rates were measured, or are asked for, on a busy machine: see describe_task.")
    flops: dict[str, int]
    bytes_unique: int
    bytes_total: int
    tile_bytes: int
    parallelism: int
    sizes: dict[str, int]
    chip: str


@tool()
def cost_sketch(context: Context, request: CostRequest) -> CostResult:
    """Count a sketch's operations and bytes at the task's sizes, and estimate its time on this chip."""
    from kernellab.dsls.machine import busy
    from kernellab.sketch.cost import cost
    from kernellab.sketch.program.bind import bind
    from kernellab.task.sample.sizes import asked_sizes

    task, target = context.task(request.task), context.target(request.dsl, request.task)
    program, unlisted = _program(request)
    binding = bind(program, task, dict(request.constexpr), target)
    asked = asked_sizes(task, request.sizes)  # their shapes alone: inputs of these sizes may not fit into memory
    sizes = {**binding.fixed, **binding.sizes(lambda at, dim: task.args[at].extents(asked)[dim])}
    found = cost(program, sizes, dict(binding.constexpr), target.chip)
    at = ", ".join(f"{name}={size}" for name, size in sizes.items()) or "the task's fixed sizes"
    rough = target.chip.rough or (target.chip.kind == "cpu" and not target.host and busy())
    estimate = f"{found.time_ms:.4g} ms, bound by {found.bound}" if found.time_ms is not None else "no estimate"
    return CostResult(
        summary=f"At {at} on {target.chip.name}: {estimate}; {kilobytes(found.bytes_total)} loaded and stored, "
        + " ".join(
            filter(None, (f"{kilobytes(found.bytes_unique)} of them distinct.", unlisted, ROUGH if rough else ""))
        ),
        next="Traffic well above the distinct bytes means that tiles are read again.",
        time_ms=found.time_ms,
        bound_by=str(found.bound or ""),
        rough=rough,
        flops={kind: round(count) for kind, count in found.flops.items()},
        bytes_unique=round(found.bytes_unique),
        bytes_total=round(found.bytes_total),
        tile_bytes=int(found.footprint),
        parallelism=round(found.parallelism),
        sizes=sizes,
        chip=target.chip.name,
    )


class LowerRequest(TaskSketchRequest):
    file: str = Field(default="", description="The file to show; empty: the one that holds the kernel.")
    page: int = Field(default=1, ge=1)


class LowerResult(Result):
    dsl: str
    files: dict[str, int] = Field(description="Characters of each file.")
    file: str
    text: Page


def lowered(request: TaskSketchRequest, task: Task, target: Target) -> tuple[Source, str]:
    """The code of a sketch by the rules, and what is to be said of the values of its constexprs.

    Raises:
        KernellabError: the sketch is wrong, or has no code in the DSL.
    """
    from kernellab.lowering import lower
    from kernellab.sketch.program.bind import bind

    program, unlisted = _program(request)
    return lower(program, bind(program, task, dict(request.constexpr), target), target), unlisted


@tool()
def lower_sketch(context: Context, request: LowerRequest) -> LowerResult:
    """Write a sketch as code in a DSL by the rules, and show one of its files."""
    from kernellab.session.edits import main_file

    source, unlisted = lowered(request, context.task(request.task), context.target(request.dsl, request.task))
    name = request.file or main_file(source)
    if name not in source.files:
        raise KernellabError(f"The lowered source has no file {name!r}.", f"Its files: {', '.join(source.files)}.")
    return LowerResult(
        summary=f"{source.dsl}: {', '.join(source.files)}. {unlisted}".strip(),
        next="verify_source takes this sketch, with the files that you change; submit_sketch puts it into a session.",
        dsl=source.dsl,
        files={file: len(text) for file, text in source.files.items()},
        file=name,
        text=page_of(source.files[name], request.page),
    )
