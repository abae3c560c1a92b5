"""The tool that describes a task: what goes in and comes out, how exact it must be, and how fast it can be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import BaseModel, Field

from kernellab.errors import KernellabError
from kernellab.tools.context import Context
from kernellab.tools.records import Page, Request, Result, Rounded
from kernellab.tools.results.fitting import page_of
from kernellab.tools.tool import tool

if TYPE_CHECKING:
    from kernellab.target import Target
    from kernellab.task import Task

#: what a person may write for a task and for a DSL
TASK = "A task's Python file below the workspace, or the name of a session."
DSL = "triton, cpp or cuda_c; empty: triton with a GPU, else cpp."
ROUGH = "Other work runs on the machine, or ran while its rates were measured: times and bounds are rough."


class TaskRequest(Request):
    task: str = Field(description=TASK)
    dsl: str = Field(default="", description=DSL)
    page: int = Field(default=1, ge=1, description="Which page of the reference.")


class Argument(BaseModel):
    name: str
    kind: str
    dtype: str
    shape: list[str]
    value: float | bool | None = None


class TaskResult(Result):
    name: str
    arguments: list[Argument]
    outputs: list[Argument]
    dims: dict[str, str] = Field(description="Each Dim with its range.")
    precision: str
    tolerance: str
    domain: dict[str, str]
    target: str
    bound_ms: Rounded | None = Field(None, description="Speed-of-light bound at the task's own sizes on a CPU, in ms.")
    rough: bool = Field(
        False, description="The rates were measured, or are asked for, on a busy machine: the bound may be far off."
    )
    headroom: Rounded | None = Field(
        None, description="How much faster the best verified kernel of the session could become, by its bound."
    )
    reference: Page


@tool()
def describe_task(context: Context, request: TaskRequest) -> TaskResult:
    """Describe a task: arguments with symbolic shapes and dtypes, dims, outputs, precision, the chip and its bound."""
    from kernellab.dsls.machine import busy

    context.progress("reads the task")
    task = context.task(request.task)
    context.progress("looks at the machine, whose rates are measured where they are not known")
    target = context.target(request.dsl, request.task)
    arguments = [
        Argument(name=a.name, kind=a.kind.value, dtype=a.dtype, shape=[str(e) for e in a.shape], value=a.value)
        for a in task.args
    ]
    outputs = [
        Argument(name=f"output {n}", kind="tensor", dtype=o.dtype, shape=[str(e) for e in o.shape])
        for n, o in enumerate(task.outputs)
    ]
    inputs = ", ".join(f"{a.name}[{', '.join(a.shape)}] {a.dtype}" for a in arguments)
    bound = _bound(task, target)
    rough = bound is not None and (target.chip.rough or (not target.chip.judged and busy()))
    return TaskResult(
        summary=f"{task.name}({inputs}) on {target}{f' at {target.host}' if target.host else ''}."
        f"{f' {ROUGH}' if rough else ''}",
        next="Read the document language/overview.md, write a sketch, and gate it with gate_sketch.",
        name=task.name,
        arguments=arguments,
        outputs=outputs,
        dims={dim.name: f"{dim.min} to {dim.max}" for dim in task.dims},
        precision=", ".join(f"{kind} in {name}" for kind, name in task.precision.items())
        or "as the reference's dtypes",
        tolerance=_tolerance(task),
        domain={name: str(domain) for name, domain in task.domain.items()},
        target=str(target),
        bound_ms=bound,
        rough=rough,
        headroom=_headroom(context, request.task),
        reference=page_of(task.text, request.page),
    )


def _tolerance(task: Task) -> str:
    """By the output's dtype, or what the task states: the numbers that docs/explanation/verdict.md explains."""
    from kernellab.verifier.compare.records import Limits

    told = []
    for output in dict.fromkeys(o.dtype for o in task.outputs):
        limits = Limits.of(output, dict(task.tolerance))
        exact = not output.startswith(("float", "bfloat", "complex"))
        told.append(
            f"{output}: equal" if exact else f"{output}: relative Frobenius error at most {limits.floor:g} (floor), or "
            f"near the framework's own; at most {limits.tau:g} of the elements off by more than {limits.tau:g} (tau)"
        )  # fmt: skip
    return "; ".join(told)


def _bound(task: Task, target: Target) -> float | None:
    """The bound by the chip's rates, as costs and prompts have it; None for a device and for another machine, whose
    rates the judge measures with a verdict."""
    from kernellab.agents.model.prompts.facts import roofline_of
    from kernellab.target import Backend

    if target.backend is not Backend.CPU or target.host:
        return None
    line = roofline_of(task, target.chip)
    return line.ms if line is not None else None


def _headroom(context: Context, name: str) -> float | None:
    if context.bound is not None:
        return None
    try:
        best = context.session(name).state.best()
    except KernellabError:  # no session of the task, or none that can be read
        return None
    share = best.verdict.bound_share if best is not None else None
    return 1 / share if share else None
