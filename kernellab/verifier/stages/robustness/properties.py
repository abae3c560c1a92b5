"""Checks with inputs that a right kernel may not support: a wrong answer yields a label, and rarely a refusal.

They cover strides, unusual alignment, values beyond the task's own inputs, other scalar arguments, and other thread
teams, all at one small size whose reference answers are shared. Strides and domains are checked here, the rest in
:mod:`kernellab.verifier.boundary_checks`.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import torch

from kernellab.conditions import AlignmentLimit, Domain, DrawnLimit, Mark, ScalarLimit, StridesLimit, of
from kernellab.errors import TaskError
from kernellab.records import Author
from kernellab.target import Backend
from kernellab.task import ArgKind
from kernellab.task.dtypes import finite
from kernellab.task.sample.draw import Family, Support
from kernellab.task.sample.inputs import legal_values
from kernellab.task.sample.sizes import runs_at
from kernellab.verifier.boundary_checks import layouts
from kernellab.verifier.boundary_checks.attempt import is_right
from kernellab.verifier.boundary_checks.caller_state import modes_kept
from kernellab.verifier.boundary_checks.combined import combined
from kernellab.verifier.boundary_checks.denormals_and_zeros import denormals, minus_zeros
from kernellab.verifier.boundary_checks.drawn import along
from kernellab.verifier.boundary_checks.fences import reads_inside
from kernellab.verifier.boundary_checks.near_zeros import near_zeros
from kernellab.verifier.boundary_checks.scalar_values import other_values
from kernellab.verifier.boundary_checks.scalars import is_held, scalar_right, scalars
from kernellab.verifier.boundary_checks.small_numbers import small_numbers
from kernellab.verifier.cases import cases, selection
from kernellab.verifier.cases.extents import of_paths
from kernellab.verifier.protocol.memory import lay_out
from kernellab.verifier.protocol.rules import CORRECT
from kernellab.verifier.stages.refused import Refused
from kernellab.verifier.stages.robustness.teams import check_teams, odd_size

if TYPE_CHECKING:
    from kernellab.verifier.cases.cases import Case
    from kernellab.verifier.stages.candidate import Stages


def properties(stages: Stages, base: Case) -> dict[int, list[Any]]:
    """Check each property on the inputs of ``base`` or variants, and add a label for each that fails. Return the values
    of scalars for which the kernel is right, by position.

    Raises:
        Refused: A scalar argument is ignored, another number of threads gives wrong results, or rows with gaps do, if
            the project's own rules wrote the kernel.
    """
    _strides(stages, base)
    if stages.context.interpreted:
        # A call takes long in the interpreter.
        return scalars(stages, base, CORRECT.scalar_values_interpreted)
    right = scalars(stages, base)
    _domain(stages, base)
    small_numbers(stages, base)
    if stages.context.request.backend is Backend.CPU:
        denormals(stages, base)
        minus_zeros(stages, base)
        near_zeros(stages, base)
        modes_kept(stages, base)
        reads_inside(stages, base)
        check_teams(stages, base)
    return right


def cheapest(stages: Stages, base: Case) -> None:
    """Check the properties that are cheap enough for a ranking: other layouts and scalars; labels as above.

    Raises:
        Refused: A scalar argument is ignored, or rows with gaps are misread, if the project's own rules wrote the
            kernel.
    """
    _strides(stages, base)
    combined(stages, base, scalars(stages, base))


def along_paths(stages: Stages) -> None:
    """Check briefly at sizes where a source may take another path: rows with gaps and transposed rows, each
    scalar at another value, and values at edges.

    Raises:
        Refused: Wrong for values that the task's own inputs draw, or that the reference's operations exist to handle.
    """
    add, conditions = stages.context.findings.add, stages.context.findings.conditions
    for sizes in of_paths(stages.task, stages.ahead.numbers):
        base = cases.case(stages.task, sizes, Family.OWN)
        if StridesLimit(contiguous="all") not in conditions:
            transposed_layout = next(layouts.transposed(base.args), None)
            if not is_right(stages, base, lay_out(base.args, strided=True)):
                add(StridesLimit(contiguous="all"))
            elif transposed_layout is not None and StridesLimit(contiguous="rows") not in conditions:
                add(*(() if is_right(stages, base, transposed_layout) else (StridesLimit(contiguous="rows"),)))
        limited = {limit.argument for limit in of(conditions, ScalarLimit)}
        for position, spec in enumerate(stages.task.args):
            if spec.kind is ArgKind.SCALAR and spec.name not in limited and not is_held(stages, position):
                scalar_cases = list(islice(other_values(base, position), 3))
                if scalar_cases and not scalar_right(stages, base, secrets.choice(scalar_cases), position):
                    add(ScalarLimit(argument=spec.name, value=base.args[position], refuted=True))
        _where_it_lies(stages, base)
        ragged = {dim.name: odd_size(sizes[dim.name], dim) for dim in stages.task.dims}
        if stages.context.request.backend is Backend.CPU and runs_at(stages.task, tuple(ragged.items())):
            reads_inside(stages, cases.case(stages.task, ragged, Family.OWN))
        along(stages, base)


def _where_it_lies(stages: Stages, case: Case) -> None:
    """Inputs that end at a page that cannot be read, and inputs off the usual alignment, on a path of the source.

    Raises:
        Refused: the kernel reads beyond its inputs.
    """
    if stages.context.request.backend is not Backend.CPU:
        return
    reads_inside(stages, case)
    usual = AlignmentLimit()
    if usual not in stages.context.findings.conditions and not is_right(
        stages, case, layouts.between_vectors(case.args)
    ):
        stages.context.findings.add(usual)


# -- strides -----------------------------------------------------------------------------------------------------------


def _strides(stages: Stages, base: Case) -> None:
    """Check rows with gaps; if these are right, also other orders, steps and alignments."""
    tensors = [a for a in base.args if isinstance(a, torch.Tensor) and a.numel()]
    case = cases.case(stages.task, dict(base.sizes), Family.OWN)
    own = layouts.as_drawn(case.args)
    if own is not None and not is_right(stages, case, own):
        raise stages.refused(
            case, "strided-inputs", "the task's own inputs are not contiguous, and the kernel misreads them"
        )
    whole = False
    if any(a.dim() >= 2 for a in tensors):
        try:
            stages.check(case, strided=True)
        except Refused as refused:
            if stages.source.origin is Author.RULES:
                name = "strided-inputs"
                report = refused.evidence.model_copy(update={"signature": name}) if refused.evidence else None
                raise Refused(f"With non-contiguous inputs: {refused.reason}", report) from refused
            whole = True
            stages.context.findings.add(StridesLimit(contiguous="all"))
            stages.restart_ended()
        else:
            _each_layout(stages, case)
    elif tensors and not is_right(stages, case, layouts.stepped(case.args)):
        stages.context.findings.add(StridesLimit(contiguous="all"))
    whole = StridesLimit(contiguous="all") in stages.context.findings.conditions
    if not whole and stages.context.request.backend is Backend.CPU:
        _in_one_place(stages, case)
    if not tensors or stages.context.interpreted:
        return
    if not is_right(stages, case, layouts.between_vectors(case.args)):
        stages.context.findings.add(AlignmentLimit())
    # On a device, addresses that are multiples of 16 share one compiled kernel.
    usual = AlignmentLimit()
    each = stages.context.request.backend is Backend.CPU and usual not in stages.context.findings.conditions
    addresses = layouts.at_addresses(case.args, 1 if each else usual.bytes)
    if not all(is_right(stages, case, layout) for layout in addresses):
        stages.context.findings.add(AlignmentLimit(bytes=layouts.LINE_BYTES))


def _each_layout(stages: Stages, case: Case) -> None:
    """Check other orders of the dimensions, for all tensors at once and for each one separately."""
    add = stages.context.findings.add
    if stages.context.interpreted:
        # A call takes milliseconds per program in the interpreter.
        case = selection.drawn_base(stages.task, interpreted=True)
    if not all(is_right(stages, case, layout) for layout in layouts.outer(case.args)):
        add(StridesLimit(contiguous="all"))
    elif not all(
        is_right(stages, case, layout) for layout in (*layouts.transposed(case.args), *layouts.cycled(case.args))
    ):
        add(StridesLimit(contiguous="rows"))
    elif not stages.context.interpreted and not all(
        is_right(stages, case, layout) for layout in layouts.with_gaps(case.args)
    ):
        add(StridesLimit(contiguous="all"))


def _in_one_place(stages: Stages, case: Case) -> None:
    """Check overlapping elements: expanded inputs, and one tensor passed for two arguments."""
    if stages.context.interpreted:
        return
    most = max(a.dim() for a in case.args if hasattr(a, "dim")) if any(hasattr(a, "dim") for a in case.args) else 0
    for dim in (*range(max(1, min(most - 1, 3))), -1):
        equal = layouts.with_equal_rows(case, dim)
        if cases.has_answer(equal) and not is_right(stages, equal, layouts.expanded(equal, dim)):
            if is_right(stages, equal, lay_out(equal.args)):
                stages.context.findings.add(Mark(kind="expanded-inputs-unsupported"))
            else:
                stages.context.findings.add(DrawnLimit(values="equal rows not handled"))
            break
    same = [pair for base_case in (case, *_square(case)) for pair in islice(layouts.given_twice(base_case), 4)]
    if not all(
        is_right(stages, twice.exact() if _writes_twice(twice, stages.written) else twice, layout)
        for twice, layout in same
        if cases.has_answer(twice)
    ):
        stages.context.findings.add(Mark(kind="tensor-given-twice"))


def _writes_twice(case: Case, written: Sequence[int]) -> bool:
    """Return whether the reference writes into one tensor by two arguments, which its float64 run does not."""
    return len({id(case.args[i]) for i in written}) < len(written)


def _square(case: Case) -> list[Case]:
    """Return the case with equal Dims, unless they are equal already, so that tensors of one rank have one shape, like
    both factors of a product; empty if the task does not accept such sizes."""
    sizes = dict(case.sizes)
    extent = min(min(sizes.values()), _SQUARE) if len(sizes) > 1 else 0
    equal_sizes = dict.fromkeys(sizes, extent)
    within = all(d.min <= extent <= d.max for d in case.task.dims)
    if not extent or equal_sizes == sizes or not within or not runs_at(case.task, tuple(equal_sizes.items())):
        return []
    return [cases.case(case.task, equal_sizes, Family.OWN)]


#: Extent of all Dims at which a product is cheap.
_SQUARE = 32


# -- values beyond the task's own --------------------------------------------------------------------------------------


def _domain(stages: Stages, base: Case) -> None:
    """Record the values for which the verdict holds, and try others if only the samples suggest the bounds."""
    task = stages.task
    bounded = {
        spec.name: legal
        for spec, value in zip(task.args, base.args, strict=True)
        if spec.kind is ArgKind.TENSOR and spec.is_float and hasattr(value, "shape") and value.numel()
        for legal in [legal_values(spec, value, task.domain.get(spec.name))]
        if legal.support in (Support.UNIT, Support.NONNEGATIVE, Support.NONPOSITIVE)
    }  # fmt: skip
    if not bounded:
        return
    free = [name for name in bounded if name not in task.domain]
    refuted = _wrong_outside(stages, base, free)
    stages.context.findings.add(*(
        Domain(argument=name, low=_BOUNDS[legal.support][0], high=_BOUNDS[legal.support][1],
               refuted=refuted and name in free)
        for name, legal in bounded.items()
    ))  # fmt: skip


#: Least and greatest value of a support; None is unbounded.
_BOUNDS = {Support.UNIT: (0.0, 1.0), Support.NONNEGATIVE: (0.0, None), Support.NONPOSITIVE: (None, 0.0)}


def _wrong_outside(stages: Stages, base: Case, free: Sequence[str]) -> bool:
    """Return whether the kernel is wrong for values of the arguments ``free`` outside their samples' range, if the
    reference is finite there."""
    if not free:
        return False
    task = stages.task
    wider = replace(task, domain={**task.domain, **dict.fromkeys(free, "real")})
    case = replace(cases.case(task, dict(base.sizes), Family.NORMAL), task=wider)
    try:
        sound = all(finite(r.native) for r in case.references)
    except TaskError:
        return False
    return sound and not is_right(stages, case, lay_out(case.args))
