"""What a sketch computes on one small case, next to the reference: the tensors themselves, to look at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kernellab.errors import NotRunnable, kilobytes
from kernellab.sketch.gate.cases import Case, cases, own_case
from kernellab.sketch.gate.compare import wrong64, wrong_declared
from kernellab.sketch.gate.run_case import (
    MOST_ELEMENTS,
    MOST_ITERATIONS,
    CaseReference,
    constexpr_values,
    element_count,
    in_tf32,
    stored_output,
    symbol_values,
)
from kernellab.sketch.program.bind import Binding, bind
from kernellab.sketch.program.program import Program
from kernellab.sketch.run import execute
from kernellab.sketch.run.confined import one_worker
from kernellab.target.threads import one_thread
from kernellab.task import Task
from kernellab.task.sample.constants import with_contents
from kernellab.task.sample.sizes import asked_sizes, input_bytes

if TYPE_CHECKING:
    import torch

    Tensor = torch.Tensor

#: most bytes of inputs and outputs of a case at requested sizes
_MOST_REQUESTED = 1 << 20


@dataclass(frozen=True)
class Output:
    """One output in the reference's shape: the sketch's and the reference's values, and masks of stored and of wrong
    elements."""

    got: Tensor
    want: Tensor
    stored: Tensor
    wrong: Tensor


def outputs(
    program: Program, task: Task, sizes: Mapping[str, int], constexpr: Mapping[str, int | float], seconds: float = 4.0,
    contents: Mapping[str, float] | None = None,
) -> tuple[Case, dict[str, Output]]:  # fmt: skip
    """Return what a sketch computes on one small case, by tensor; in float64 if the reference can, else in the declared
    dtypes. ``sizes`` are those of a case of the gate, or of Dims; empty: a case of several tiles. ``contents`` has the
    arguments with constant contents.

    Raises:
        NotRunnable: there is no such case, it is too large, or the sketch cannot be run. SketchError: the sketch does
        not fit the task. TaskError: the reference does not accept the case, or the task has no such tensor.
    """
    binding = bind(program, task, constexpr)
    case = _requested(program, binding, task, dict(sizes))
    if contents:
        case = replace(case, args=with_contents(task, case.args, contents).args, contents=contents)
    with one_worker(), one_thread():
        reference = CaseReference(task, case)
        exact = reference.exact
        want = exact if exact is not None else reference.results()
        values = constexpr_values(binding, case)
        symbols = symbol_values(program, binding, case, want)
        if element_count(program, {**values, **symbols}) > MOST_ELEMENTS:
            raise NotRunnable("The sketch's tensors are too large to interpret it.", "Give smaller sizes.")
        run = execute(
            program, binding.inputs(case.args), symbols=symbols, constexpr=values, f64=exact is not None,
            keep=MOST_ITERATIONS if case.sampled else None, seconds=seconds,
        )  # fmt: skip
    by_tensor: dict[str, Output] = {}
    for bound, expected in zip(binding.outputs, want, strict=True):
        got, stored, _ = stored_output(run.outputs[bound.tensor], run.written[bound.tensor], expected, case)
        if exact is not None:
            _, wrong = wrong64(got, expected)
        else:
            _, wrong = wrong_declared(got, expected, tf32=in_tf32(program))
        by_tensor[bound.tensor] = Output(got, expected, stored, wrong & stored if case.sampled else wrong)
    return case, by_tensor


def _requested(program: Program, binding: Binding, task: Task, sizes: dict[str, int]) -> Case:
    """Return the gate's case of ``sizes``, or one of the requested Dims. Raises NotRunnable: neither can be run."""
    listed = list(cases(program, binding, task))
    if task.dims and sizes:
        sizes = asked_sizes(task, sizes)
    case = next((case for case in listed if dict(case.sizes) == sizes), None) if sizes else None
    if not sizes:
        case = listed[:2][-1] if listed else own_case(program, task)
    elif case is None and task.dims and input_bytes(task, sizes) <= _MOST_REQUESTED:
        case = Case(task.module().sample(sizes, seed=0), sizes)
    if case is not None:
        return case
    if task.dims and sizes:
        taken, most = kilobytes(input_bytes(task, sizes)), kilobytes(_MOST_REQUESTED)
        why = f"its tensors take {taken}, and at most {most} are run"
    else:
        why = "its shapes are fixed"
    places = "; ".join(one.at for one in listed) or "none, as its shapes are fixed"
    raise NotRunnable(f"No case of these sizes can be run here: {why}.", f"Take one of the gate's: {places}.")
