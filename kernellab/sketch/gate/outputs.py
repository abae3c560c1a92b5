"""One case of the gate as values: what a sketch computes there, next to the reference."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from time import thread_time
from typing import TYPE_CHECKING

from kernellab.errors import NotRunnable, TaskError
from kernellab.sketch.gate.cases import Case, cases, own_case
from kernellab.sketch.gate.compare import wrong64, wrong_declared
from kernellab.sketch.gate.reference import reference64
from kernellab.sketch.gate.stages import (
    KEEP,
    MOST_ELEMENTS,
    elements_of,
    held_results,
    in_tf32,
    output_view,
    symbols_of,
)
from kernellab.sketch.program.bind import Binding, bind
from kernellab.sketch.program.program import Program
from kernellab.sketch.run import execute
from kernellab.target.threads import one_thread
from kernellab.task import Task
from kernellab.task.dtypes import parts
from kernellab.task.sample.sizes import input_bytes

if TYPE_CHECKING:
    import torch

#: bytes of inputs and outputs of a case that is asked for by its sizes
_MOST_BYTES = 32 << 20


@dataclass(frozen=True)
class Output:
    """One output in the reference's shape: what the sketch computes, what the reference does, and which elements the
    sketch stored and which the gate calls wrong."""

    got: torch.Tensor
    want: torch.Tensor
    stored: torch.Tensor
    wrong: torch.Tensor


def outputs(
    program: Program,
    task: Task,
    sizes: Mapping[str, int] | None = None,
    constexpr: Mapping[str, int | float] | None = None,
    seconds: float = 4.0,
) -> tuple[Case, dict[str, Output]]:
    """The outputs by the sketch's tensors on one small case, in float64 where the reference has that, else in the
    declared dtypes. ``sizes`` are those of one of the gate's cases, or of Dims; without them a case of several tiles.

    Raises:
        NotRunnable: there is no such case, it is too large, or the sketch cannot be run. SketchError: it does not fit
            the task. TaskError: the reference does not take the case.
    """
    binding = bind(program, task, constexpr)
    case = _case(program, binding, task, dict(sizes or {}))
    with one_thread():
        exact = reference64(task, case.args)
        want = held_results(task, exact if exact is not None else map(parts, task.module().results(case.args)))
        values = {**binding.constexpr, **{n: case.args[p] for n, p in binding.scalars.items()}}
        symbols = symbols_of(program, binding, case, want)
        if elements_of(program, {**values, **symbols}) > MOST_ELEMENTS:
            raise NotRunnable("The sketch's tensors are too large to interpret it.", "Give smaller sizes.")
        ran = execute(
            program, binding.inputs(case.args), symbols=symbols, constexpr=values, f64=exact is not None,
            keep=KEEP if case.sampled else None, deadline=thread_time() + seconds,
        )  # fmt: skip
    shown = {}
    for bound, wanted in zip(binding.outputs, want, strict=True):
        got, stored, _ = output_view(ran.outputs[bound.tensor], ran.written[bound.tensor], wanted, case)
        found = wrong64(got, wanted) if exact is not None else wrong_declared(got, wanted, tf32=in_tf32(program))
        wrong = found[1] & stored if case.sampled else found[1]
        shown[bound.tensor] = Output(got, wanted, stored, wrong)
    return case, shown


def _case(program: Program, binding: Binding, task: Task, sizes: dict[str, int]) -> Case:
    known = list(cases(program, binding, task))
    if not sizes:
        case = known[:2][-1] if known else own_case(program, task)
        if case is None:
            raise NotRunnable("The task's shapes are fixed and too large to run here.", "Let the code be verified.")
        return case
    if task.dims:
        unknown = sizes.keys() - {dim.name for dim in task.dims}
        sizes = {**task.module().default_sizes(), **sizes}
        outside = [d for d in task.dims if not d.min <= sizes[d.name] <= d.max]
        if unknown or outside:
            ranges = ", ".join(f"{d.name} from {d.min} to {d.max}" for d in task.dims)
            raise TaskError("The task does not have these sizes.", f"Its Dims: {ranges}.")
    same = next((case for case in known if dict(case.sizes) == sizes), None)
    if same is not None:
        return same
    if not task.dims:
        at = "; ".join(case.at for case in known) or "none: its shapes are fixed"
        raise NotRunnable("The gate has no case of these sizes.", f"Leave them out, or take one of its cases: {at}.")
    if input_bytes(task, sizes) > _MOST_BYTES:
        raise NotRunnable("A case of these sizes is too large to run here.", "Give smaller sizes.")
    return Case(task.module().sample(sizes, seed=0), sizes)
