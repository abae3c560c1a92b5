"""What a kernel does with inputs that not every right kernel takes: told in labels, refused only where it is wrong.

Strides, a place off the usual alignment, NaN and infinities, values beyond those that the task's own inputs show, other
numbers for scalar arguments, other teams of threads. All at one small size, whose reference answers are shared.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from math import inf, nan, prod
from typing import TYPE_CHECKING, Any

from kernellab.errors import TaskError
from kernellab.records import Author
from kernellab.target import Backend
from kernellab.task import ArgKind
from kernellab.task.dtypes import alike, computable, finite, is_float8
from kernellab.task.sample.draw import Family, Support
from kernellab.task.sample.inputs import legal_values
from kernellab.verifier.boundary_checks.expanded import expanded, with_equal_rows
from kernellab.verifier.boundary_checks.fences import reads_inside
from kernellab.verifier.boundary_checks.modes import denormals, modes_kept
from kernellab.verifier.cases import cases
from kernellab.verifier.compare.compare import compare, metadata
from kernellab.verifier.judge.process import WorkerFailure
from kernellab.verifier.protocol.memory import Layout, Place, lay_out
from kernellab.verifier.protocol.rules import CAPS
from kernellab.verifier.stages.refused import Refused

if TYPE_CHECKING:
    import torch

    from kernellab.verifier.cases.cases import Case
    from kernellab.verifier.stages.candidate import Stages

    Tensor = torch.Tensor

_PAGE = 4096


def properties(stages: Stages, base: Case) -> None:
    """Tries each property on the inputs of ``base``, or beside them, and labels those that the kernel does not have.

    Raises:
        Refused: a scalar argument is ignored, another number of threads gives wrong results, or rows with gaps do where
            our own rules wrote the kernel.
    """
    _strides(stages, base)
    if stages.context.interpreted:
        # a call takes seconds there
        return
    _scalars(stages, base)
    _domain(stages, base)
    _special(stages, base)
    if stages.context.request.backend is Backend.CPU:
        denormals(stages, base)
        modes_kept(stages, base)
        reads_inside(stages, base)
        _threads(stages, base)


# -- strides -----------------------------------------------------------------------------------------------------------


def _strides(stages: Stages, base: Case) -> None:
    """Rows with gaps; and where these are read rightly, other orders and steps, and a place between two vectors."""
    import torch

    tensors = [a for a in base.args if isinstance(a, torch.Tensor) and a.numel()]
    case = cases.case(stages.task, dict(base.sizes), Family.OWN)
    if any(a.dim() >= 2 for a in tensors):
        try:
            stages.check(case, strided=True)
        except Refused as refused:
            if stages.source.origin is Author.RULES:
                name = "strided-inputs"
                found = refused.evidence.model_copy(update={"signature": name}) if refused.evidence else None
                raise Refused(f"With non-contiguous inputs: {refused.reason}", found) from refused
            stages.context.findings.label("contiguous-only")
            _anew(stages)
        else:
            if not stages.context.interpreted and not _right(stages, case, _transposed(case.args)):
                stages.context.findings.label("rows contiguous only")
    elif tensors and not _right(stages, case, _stepped(case.args)):
        stages.context.findings.label("contiguous-only")
    if "contiguous-only" not in stages.context.findings.labels and stages.context.request.backend is Backend.CPU:
        equal = with_equal_rows(case)
        if not stages.context.interpreted and not _right(stages, equal, expanded(equal)):
            stages.context.findings.label("expanded inputs not read")
    if tensors and not stages.context.interpreted and not _right(stages, case, _between_vectors(case.args)):
        stages.context.findings.label("aligned inputs only")


def _transposed(args: Sequence[Any]) -> Layout:
    """The last two dimensions of each tensor lie the other way round."""

    def strides(shape: tuple[int, ...]) -> tuple[int, ...]:
        if len(shape) < 2:
            return _contiguous(shape)
        swapped = _contiguous((*shape[:-2], shape[-1], shape[-2]))
        return (*swapped[:-2], swapped[-1], swapped[-2])

    return _placed(args, strides, 0)


def _stepped(args: Sequence[Any]) -> Layout:
    """Every other element of a larger tensor."""
    return _placed(args, lambda shape: tuple(2 * s for s in _contiguous(shape)), 0)


def _between_vectors(args: Sequence[Any]) -> Layout:
    """Contiguous, one element behind a page's boundary."""
    return _placed(args, _contiguous, 1)


def _placed(args: Sequence[Any], strides: Callable[[tuple[int, ...]], tuple[int, ...]], shift: int) -> Layout:
    import torch

    places: list[Place] = []
    end = 0
    for arg in args:
        if not isinstance(arg, torch.Tensor):
            places.append(Place(value=arg))
            continue
        offset = -(-(end + CAPS.guard) // _PAGE) * _PAGE + shift * arg.element_size()
        shape = tuple(arg.shape)
        place = Place(offset, shape, strides(shape), str(arg.dtype).removeprefix("torch."))
        places.append(place)
        end = offset + place.span * arg.element_size()
    return Layout(tuple(places), -(-(end + CAPS.guard) // _PAGE) * _PAGE)


def _contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(prod(shape[i + 1 :]) for i in range(len(shape)))


# -- scalars -----------------------------------------------------------------------------------------------------------


def _scalars(stages: Stages, base: Case) -> None:
    """Each number of the task at another value, where the reference takes one and answers otherwise."""
    for position, spec in enumerate(stages.task.args):
        if spec.kind is not ArgKind.SCALAR:
            continue
        case = next(_other_values(base, position), None)
        value = base.args[position]
        if case is None:
            stages.context.findings.flags.append(f"scalar: only {spec.name} = {value} was tried")
            continue
        got = _outputs(stages, case, lay_out(case.args))
        if got is not None and _within(stages, case, got):
            continue
        before = _outputs(stages, base, lay_out(base.args))
        ignored = got is not None and before is not None and all(alike(a, b) for a, b in zip(got, before, strict=True))
        if ignored and isinstance(value, float) and stages.source.origin is not Author.RULES:
            other = case.args[position]
            message = f"{spec.name!r} was changed from {value} to {other:.6g} and the result did not change as it must"
            raise stages.refused(case, "ignores-input", message)
        stages.context.findings.label(f"{spec.name} = {value} only")


def _other_values(base: Case, position: int) -> Iterator[Case]:
    """Cases with another value of a scalar, at which the reference runs, is finite and answers otherwise."""
    value = base.args[position]
    tried: tuple[Any, ...]
    if isinstance(value, bool):
        tried = (not value,)
    elif isinstance(value, int):
        tried = (value + 1, value - 1, 2 * value, value // 2) if value > 1 else (value + 1,)
    else:
        tried = (3 * value, value / 3) if value else (0.5, -0.5)
    for other in tried:
        case = base.with_change(("scalar", position, other))
        try:
            found = case.references
        except TaskError:
            continue
        same_kind = len(found) == len(base.references) and all(
            f.native.shape == b.native.shape and f.native.dtype == b.native.dtype
            for f, b in zip(found, base.references, strict=True)
        )
        if not same_kind or not all(finite(f.native) for f in found):
            continue
        if any(compare(b.native, f, limit_)[0] is not None for b, f, limit_ in _triples(base, case)):
            yield case


def _triples(base: Case, case: Case) -> Iterator[tuple[Any, Any, Any]]:
    from kernellab.verifier.compare.records import Limits

    for before, now in zip(base.references, case.references, strict=True):
        yield before, now, Limits.of(str(now.native.dtype).removeprefix("torch."))


# -- values beyond the task's own --------------------------------------------------------------------------------------


def _domain(stages: Stages, base: Case) -> None:
    """Says of which values the verdict holds; and tries others, where the samples alone say so."""
    task = stages.task
    shut = {
        spec.name: legal
        for spec, value in zip(task.args, base.args, strict=True)
        if spec.kind is ArgKind.TENSOR and spec.is_float and hasattr(value, "shape") and value.numel()
        for legal in [legal_values(spec, value, task.domain.get(spec.name))]
        if legal.support in (Support.UNIT, Support.NONNEGATIVE, Support.NONPOSITIVE)
    }  # fmt: skip
    if not shut:
        return
    words = {Support.UNIT: "in [0, 1]", Support.NONNEGATIVE: ">= 0", Support.NONPOSITIVE: "<= 0"}
    said = ", ".join(f"{name} {words[legal.support]}" for name, legal in shut.items())
    stages.context.findings.flags.append(f"domain: verified for {said}")
    free = [name for name in shut if name not in task.domain]
    if not free:
        return
    wider = replace(task, domain={**task.domain, **dict.fromkeys(free, "real")})
    case = replace(cases.case(task, dict(base.sizes), Family.NORMAL), task=wider)
    try:
        sound = all(finite(r.native) for r in case.references)
    except TaskError:
        return
    if sound and not _right(stages, case, lay_out(case.args)):
        stages.context.findings.label(f"right for {said} only")


def _special(stages: Stages, base: Case) -> None:
    """A NaN, and an infinity, in each input: is the result not finite where the reference's is not?"""
    for words, value in (("NaN", nan), ("inf", inf)):
        case = base.with_change(("special", -1, value))
        if not any(_takes_special(a) for a in base.args):
            return
        try:
            wanted = [r.native for r in case.references]
        except TaskError:
            continue
        if all(finite(w) for w in wanted):
            continue
        got = _outputs(stages, case, lay_out(case.args))
        if got is None or not all(_as_special(g, w) for g, w in zip(got, wanted, strict=True)):
            stages.context.findings.label(f"{words} not propagated")


def _takes_special(value: Any) -> bool:
    import torch

    return isinstance(value, torch.Tensor) and value.is_floating_point() and not is_float8(value) and value.numel() > 0


def _as_special(got: Tensor, want: Tensor) -> bool:
    if not want.is_floating_point():
        return True
    import torch

    return bool(torch.equal(computable(got).isfinite(), computable(want).isfinite()))


# -- threads -----------------------------------------------------------------------------------------------------------


def _threads(stages: Stages, base: Case) -> None:
    """One thread, and more than there are cores: another share of the work, another order."""
    for count in (1, len(os.sched_getaffinity(0)) + 3):
        stages.worker.team(count, stages.context.left(10.0))
        try:
            stages.check(replace(base, seed=base.seed))
        except Refused as refused:
            found = refused.evidence.model_copy(update={"signature": "race"}) if refused.evidence else None
            one = "1 thread" if count == 1 else f"{count} threads"
            raise Refused(f"With {one}: {refused.reason}", found) from refused
        finally:
            if not stages.worker.gone():
                stages.worker.team(stages.threads, stages.context.left(10.0))


# -- inside ------------------------------------------------------------------------------------------------------------


def _right(stages: Stages, case: Case, layout: Layout) -> bool:
    got = _outputs(stages, case, layout)
    return got is not None and _within(stages, case, got)


def _within(stages: Stages, case: Case, outputs: Sequence[Tensor]) -> bool:
    for i, (got, reference, limits) in enumerate(
        zip(outputs, case.references, stages.limits_for(case, hidden=True), strict=True)
    ):
        if compare(got, reference, limits)[0] is not None and compare(got, case.nudged[i], limits)[0] is not None:
            return False
    return True


def _outputs(stages: Stages, case: Case, layout: Layout) -> list[Tensor] | None:
    """The kernel's outputs for a case in ``layout``; None where it raises, crashes, or answers in another form."""
    with _forgiving(stages) as failed:
        stages.worker.write(0, layout, case.args)
        seconds = stages.context.left(stages.call_deadline(case))
        call = stages.worker.call(layout, (0,), seconds, poison=True)
        if metadata([(o.shape, o.dtype) for o in call.outputs], [r.native for r in case.references]):
            return None
        outputs = [stages.worker.read(o) for o in call.outputs]
    return None if failed else outputs


@contextmanager
def _forgiving(stages: Stages) -> Iterator[list[WorkerFailure]]:
    failed: list[WorkerFailure] = []
    try:
        yield failed
    except WorkerFailure as failure:
        failed.append(failure)
        _anew(stages)


def _anew(stages: Stages) -> None:
    """A worker that has ended is started again."""
    if stages.worker.gone() or stages.worker.closed:
        stages.restart()
