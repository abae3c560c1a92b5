"""Runs a sketch on one case of the gate, in float64 and in its declared dtypes, and compares it with the reference."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from kernellab.errors import SketchError, TaskError
from kernellab.sketch.gate.cases import Case
from kernellab.sketch.gate.compare import FLOORS, Mismatch, compare64, compare_declared
from kernellab.sketch.gate.reference import reference, reference64
from kernellab.sketch.program.bind import Binding
from kernellab.sketch.program.program import DType, Gemm, Program, TensorRole
from kernellab.sketch.program.walk import statements
from kernellab.sketch.run import execute
from kernellab.sketch.run.confined import OutOfTime, used
from kernellab.target.threads import all_threads
from kernellab.task import Task
from kernellab.task.dtypes import finite, held

if TYPE_CHECKING:
    import torch

    Tensor = torch.Tensor
    Tensors = tuple[Tensor, ...]

#: most elements of all tensors of a case, and of a reduced one, whose temporary tensors may not be reduced
MOST_ELEMENTS, _MOST_ELEMENTS_CUT = 48 << 20, 8 << 20
#: most iterations of each parallel loop that run on real shapes
MOST_ITERATIONS = 3
#: bytes of inputs from which the reference runs on all threads
_LARGE = 4 << 20


@dataclass(frozen=True)
class CaseResult:
    """The result of one case: right, or the first wrong output, its mismatch, and which other outputs were wrong."""

    case: Case
    #: the largest error of the float64 run, and of a wrong output
    error: float
    output: str = ""
    mismatch: Mismatch | None = None
    #: whether each other output was wrong too
    others: Mapping[str, bool] = field(default_factory=dict)

    @property
    def alone(self) -> bool:
        """Whether no other output was wrong."""
        return not any(self.others.values())


class CaseReference:
    """The reference's results on a case, in the form of the sketch's tensors, computed when they are first read."""

    def __init__(self, task: Task, case: Case) -> None:
        self.task, self.case = task, case
        large = sum(a.nbytes for a in case.args if hasattr(a, "nbytes")) >= _LARGE
        self._threads = all_threads if large else nullcontext

    @cached_property
    def declared(self) -> Tensors | None:
        """The results in the declared dtypes; None if the reference does not accept the case."""
        try:
            return self.results()
        except TaskError:
            return None

    def results(self) -> Tensors:
        """Compute the results in the declared dtypes. Raises TaskError: the reference does not accept the case."""
        with self._threads():
            return self._held(reference(self.task, self.case.args))

    @cached_property
    def exact(self) -> Tensors | None:
        """The results in float64; None if those are not available."""
        with self._threads():
            results = reference64(self.task, self.case.args)
        return None if results is None else self._held(results)

    def _held(self, results: Tensors) -> Tensors:
        return tuple(held(r, spec.last) for r, spec in zip(results, self.task.results, strict=True))


def run_case(task: Task, program: Program, binding: Binding, case: Case, seconds: float) -> CaseResult | None:
    """Return the result of ``case``, for which a sketch has ``seconds`` of CPU time; None if the reference does not
    accept it.

    Raises:
        OutOfTime: the sketch takes too long, or its tensors are too large. SketchError: it does not fit the case.
    """
    wanted = CaseReference(task, case)
    values = constexpr_values(binding, case)
    is_known_first = not case.is_own or bool(case.contents)
    if binding.of_outputs and is_known_first and wanted.declared is None:
        return None
    if case.contents and (wanted.declared is None or not all(map(finite, wanted.declared))):
        return None
    symbols = symbol_values(program, binding, case, wanted.declared if binding.of_outputs and is_known_first else None)
    most = _MOST_ELEMENTS_CUT if case.is_cut else MOST_ELEMENTS
    if element_count(program, {**values, **symbols}) > most:
        raise OutOfTime("The sketch's tensors are too large to interpret it.", "Let the code be verified instead.")
    # on real shapes the sketch runs first, since it may take too long and the reference takes seconds there
    if not case.is_own and wanted.declared is None:
        return None
    inputs = binding.inputs(case.args)
    keep = MOST_ITERATIONS if case.sampled else None
    worst = 0.0
    for f64 in (True, False):
        began = used()
        run = execute(program, inputs, symbols=symbols, constexpr=values, f64=f64, keep=keep, seconds=seconds)
        seconds -= used() - began
        if wanted.declared is None:
            return None
        results = wanted.exact if f64 else wanted.declared
        if results is None:
            continue
        mismatches: dict[str, Mismatch] = {}
        for number, bound in enumerate(binding.outputs):
            name = bound.tensor
            stored = stored_output(run.outputs[name], run.written[name], results[number], case)
            error, mismatch = _compared(task, program, wanted, number, stored, f64)
            worst = max(worst, error)
            if mismatch is not None and not _selects_alike(task, case, number, stored, wanted.declared[number]):
                mismatches[name] = mismatch
        if mismatches:
            first = next(iter(mismatches))
            worst = max(worst, *(m.error for m in mismatches.values()))
            others = {b.tensor: b.tensor in mismatches for b in binding.outputs if b.tensor != first}
            return CaseResult(case, worst, first, mismatches[first], others)
    return CaseResult(case, worst)


def _compared(
    task: Task, program: Program, wanted: CaseReference, number: int, stored: StoredOutput, f64: bool
) -> tuple[float, Mismatch | None]:  # fmt: skip
    """Return the error of a float64 run (0 for a run in the declared dtypes), and the mismatch of an output."""
    assert wanted.declared is not None
    exact = None if wanted.exact is None else wanted.exact[number]
    if f64 and exact is not None:
        return compare64(stored.got, exact, stored.written, stored.where)
    rounds = in_tf32(program) and (not task.strict or bool(task.rounded))
    declared = wanted.declared[number]
    return 0.0, compare_declared(stored.got, declared, exact, stored.written, stored.where, tf32=rounds)


def _selects_alike(task: Task, case: Case, number: int, stored: StoredOutput, want: Tensor) -> bool:
    """Are these the positions of other, equal elements? Torch does not define the order of equal elements."""
    if want.is_floating_point():
        return False
    from kernellab.capture.selection import selections

    selection = selections(task.module().results, case.args)[number]
    wrong = selection.wrong(stored.got, want, FLOORS) if selection is not None else None
    return wrong is not None and not bool((wrong if stored.where is None else wrong & stored.where).any())


# -- what a run needs, and what it has stored --------------------------------------------------------------------------


def constexpr_values(binding: Binding, case: Case) -> dict[str, int | float]:
    """Return the values of all constexprs; those that are scalar arguments have the case's."""
    return {**binding.constexpr, **{name: case.args[position] for name, position in binding.scalars.items()}}


def symbol_values(program: Program, binding: Binding, case: Case, results: Tensors | None) -> dict[str, int]:
    """Return the symbols' values in the case: from its arguments, from the reference's ``results``, else from the
    sketch."""
    sizes = binding.sizes(lambda position, dim: case.args[position].shape[dim])
    if results is not None:
        sizes |= {s: int(results[number].shape[dim]) for s, (number, dim) in binding.of_outputs.items()}
    return {**dict(program.sizes), **sizes}


def element_count(program: Program, values: Mapping[str, int | float]) -> int:
    """Return the elements of all tensors, temporary ones included; 0 for those whose sizes do not follow from
    ``values``."""
    integers = {name: int(value) for name, value in values.items() if float(value).is_integer()}
    shapes = [t.shape for t in program.tensors if all(e.names() <= integers.keys() for e in t.shape)]
    return sum(prod(e.evaluate(integers) for e in shape) for shape in shapes)


class StoredOutput(NamedTuple):
    """An output of a run in the reference's shape, a mask of its stored elements, and the places to compare: None for
    all, the stored ones for a sample."""

    got: Tensor
    written: Tensor
    where: Tensor | None


def stored_output(got: Tensor, written: Tensor, want: Tensor, case: Case) -> StoredOutput:
    """Return what a run has stored of an output, in the shape of ``want``. Raises SketchError: it has more or fewer
    elements."""
    if got.numel() != prod(want.shape):
        raise SketchError(
            f"The sketch writes {list(got.shape)} where the reference gives {list(want.shape)} at {dict(case.sizes)}.",
            "Declare the out tensor with the output's shape.",
        )
    got, written = got.reshape(want.shape), written.reshape(want.shape)
    return StoredOutput(got, written, written if case.sampled else None)


def in_tf32(program: Program) -> bool:
    """Does a product of the sketch round its factors to TF32, or to float16, whose mantissa is as long?"""
    narrow = any(t.dtype is DType.F16 and t.role is not TensorRole.TEMP for t in program.tensors)
    for kernel in program.kernels:
        products = [s for s in statements(kernel.body) if isinstance(s, Gemm)]
        # several products of float16 are those of the parts of float32
        halves = not narrow and len(products) == 1 and products[0].a.type.dtype is DType.F16
        if halves or any(s.precision == "tf32" for s in products):
            return True
    return False
