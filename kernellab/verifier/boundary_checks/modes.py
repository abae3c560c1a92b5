"""Checks of denormals, signs of zeros, and what a kernel leaves to its caller: processor modes, process state, its
arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from kernellab.conditions import Mark
from kernellab.conditions.code import ImportChanges
from kernellab.errors import TaskError
from kernellab.task import ArgKind, Task, TaskForm
from kernellab.task.dtypes import computable
from kernellab.task.meta.operators import watching
from kernellab.task.sample.draw import OPEN
from kernellab.task.sample.inputs import legal_values
from kernellab.task.values import device_of
from kernellab.verifier.attribution.counters import Unseen, rounding_modes, x87_modes
from kernellab.verifier.judge.process import WorkerFailure
from kernellab.verifier.protocol.memory import lay_out
from kernellab.verifier.protocol.rules import EDGES
from kernellab.verifier.protocol.sanitize import shown

if TYPE_CHECKING:
    from kernellab.verifier.cases.cases import Case
    from kernellab.verifier.stages.candidate import Stages


#: MXCSR bits: the system's default for a thread (exceptions masked), flush-to-zero with denormals-are-zero, and the two
#: rounding bits.
_DEFAULT, _FLUSHED, _ROUNDED = 0x1F80, 0x8040, 0x6000
#: x87 control word that the system gives a thread: exceptions masked, 64 bits, round to nearest.
_X87 = 0x033F


def modes_kept(stages: Stages, case: Case) -> None:
    """Check the modes of the calling thread after a call, read by the judge from the stopped process.

    Denormals left flushed for the caller are a flag (-ffast-math does it when an object is loaded); the mode is
    restored before each call.

    Raises:
        Refused: The rounding mode changed, or an arithmetic exception would end the process.
    """
    try:
        stages.call(case, poison=False)
        mode = rounding_modes(stages.worker.pid).get(stages.worker.pid, _DEFAULT)
        x87 = x87_modes(stages.worker.pid)
    except Unseen:
        return
    except WorkerFailure as failure:
        raise stages.failed("robust", failure, case) from failure
    if mode & _ROUNDED:
        raise stages.refused(case, "rounding-mode", "changes the rounding mode of the calling thread")
    if mode & _DEFAULT != _DEFAULT:
        raise stages.refused(
            case, "rounding-mode", "leaves a trap for NaN, infinities or rounding in the calling thread"
        )
    if x87 != _X87:
        raise stages.refused(case, "rounding-mode", "changes the x87 control word of the calling thread (long double)")
    if mode & _FLUSHED:
        stages.context.findings.add(Mark(kind="denormals-left-flushed"))


def left_to_caller(stages: Stages, case: Case) -> None:
    """Check the caller's state as the worker reports it for one untimed call. This detects errors, not forged messages.

    Raises:
        Refused: The process's state or an argument changed, or the result has another form than the reference's.
    """
    try:
        layout = lay_out(case.args)
        stages.worker.write(0, layout, case.args)
        report = stages.worker.witness(layout, 0, stages.context.left(stages.call_deadline(case)))
    except WorkerFailure as failure:
        raise stages.failed("robust", failure, case) from failure
    _imported(stages, report.get("imported"))
    changed, touched = report.get("changed"), report.get("touched")
    if isinstance(changed, list) and changed:
        raise stages.refused(case, "caller-state", f"leaves {shown(str(changed[0]))[:80]} changed for its caller")
    for i in touched if isinstance(touched, list) else ():
        if isinstance(i, int) and i in range(len(stages.task.args)) and i not in stages.written:
            name = stages.task.args[i].name
            message = f"leaves its input {name!r} as another tensor (memory, shape, strides, gradient or version)"
            raise stages.refused(case, "mutates-input", message)
    _form_kept(stages, case, report)
    if report.get("threads") is True:
        message = "leaves another number of threads for its caller (name it in the kernel's own loops instead)"
        raise stages.refused(case, "caller-state", message)


#: number of words of a worker that a condition repeats
_WORDS = 4


def _imported(stages: Stages, changed: Any) -> None:
    """Report what the import of the kernel changed for the whole program. A Model's constructor draws its weights."""
    if not isinstance(changed, list):
        return
    words = [shown(str(word))[:80] for word in changed]
    if stages.task.form is TaskForm.KERNELBENCH or any("ModelNew" in t for t in stages.source.files.values()):
        words = [word for word in words if word != "random numbers"]
    if words:
        rest = [f"{len(words) - _WORDS} more"] if len(words) > _WORDS else []
        stages.context.findings.add(ImportChanges(changed=(*words[:_WORDS], *rest)))


def _form_kept(stages: Stages, case: Case, found: dict[str, Any]) -> None:
    """Check the form of the result: a tensor for a tensor; several, in any container, for several."""
    module = stages.task.module()
    if module.numpy or stages.written:
        return
    before = torch.get_rng_state()
    with torch.no_grad():
        raw = module.call([a.clone() if isinstance(a, Tensor) else a for a in case.args])
    if found.get("random") is True and torch.equal(before, torch.get_rng_state()):
        message = "leaves torch's, NumPy's or Python's random numbers changed, which the reference does not use"
        raise stages.refused(case, "caller-state", message)
    results = raw if isinstance(raw, (tuple, list)) else [raw]
    needed = sum(t.untyped_storage().nbytes() for t in results if isinstance(t, Tensor))
    held_bytes = found.get("bytes")
    if isinstance(held_bytes, int) and needed and held_bytes > EDGES.oversized * needed + EDGES.oversized_bytes:
        stages.context.findings.add(Mark(kind="outputs-oversized"))
    form = found.get("form")
    if isinstance(raw, Tensor) and form in ("several", "a number"):
        raise stages.refused(case, "output", f"returns {form} where the reference returns a tensor")
    if found.get("none") is True and not (isinstance(raw, (tuple, list)) and any(r is None for r in raw)):
        raise stages.refused(case, "output", "returns None among its results, which the reference does not")
    if found.get("grad") is True and isinstance(raw, Tensor) and not raw.requires_grad:
        raise stages.refused(case, "output", "returns a leaf that requires a gradient")


def denormals(stages: Stages, base: Case) -> None:
    """Check inputs so small that the answers are denormal; zeros instead yield the label ``denormals flushed``."""
    case = base.with_change(("scale", -1, EDGES.denormal))
    try:
        native = [r.native for r in case.references]
    except TaskError:
        return
    small = [_denormal(w) for w in native]
    if not any(bool(s.any()) for s in small):
        return
    try:
        layout = lay_out(case.args)
        stages.worker.write(0, layout, case.args)
        call = stages.worker.call(layout, (0,), stages.context.left(stages.call_deadline(case)))
        got = [stages.worker.read(o) for o in call.outputs]
    except WorkerFailure as failure:
        raise stages.failed("robust", failure, case) from failure
    for have, is_small in zip(got, small, strict=True):
        if (
            have.shape == is_small.shape
            and bool(is_small.any())
            and bool((have[is_small] == 0).double().mean() > EDGES.flushed)
        ):
            stages.context.findings.add(Mark(kind="denormals-flushed"))


def _denormal(values: Tensor) -> Tensor:
    if values.dtype not in (torch.float32, torch.float64):
        return torch.zeros_like(values, dtype=torch.bool)
    return (values != 0) & (values.abs() < torch.finfo(values.dtype).tiny)


def minus_zeros(stages: Stages, base: Case) -> None:
    """Check zeros with a sign in each argument. Where an elementwise reference has a zero of one sign, in float64 too,
    a kernel's zero of the other sign is a flag. Sums, whose order decides the sign, and operators that select one of
    two equal zeros, are not checked."""
    if stages.task.framework == "numpy":
        return  # its operations cannot be observed
    generator, args = torch.Generator().manual_seed(base.seed), list(base.args)
    for i, (spec, value) in enumerate(zip(stages.task.args, base.args, strict=True)):
        is_free = spec.kind is not ArgKind.SCALAR and isinstance(value, Tensor) and value.dtype in _SIGNED
        if not is_free or spec.static:
            continue
        legal = legal_values(spec, value, stages.task.domain.get(spec.name))
        if legal.support in OPEN and legal.low <= 0 <= legal.high:
            is_zeroed = (torch.rand(value.shape, generator=generator) < EDGES.zeros).to(value.device)
            args[i] = value.masked_fill(is_zeroed, -0.0)
    case = base.given(tuple(args))
    try:
        with watching(_of_one_zero):
            native = case.native
        zeros = [_zeros_of_one_sign(r.native, r.want) for r in case.references]
    except (TaskError, Mixes):
        return
    if not any(bool(a.any()) for a in zeros):
        return
    try:
        call = stages.call(case)
        got = [stages.worker.read(o) for o in call.outputs]
    except WorkerFailure as failure:
        raise stages.failed("robust", failure, case) from failure
    for have, want, is_zero in zip(got, native, zeros, strict=False):
        if (
            have.dtype in _SIGNED
            and have.shape == want.shape
            and bool((is_zero & (have == 0) & (have.signbit() != want.signbit())).any())
        ):
            stages.context.findings.add(Mark(kind="zeros-unsigned"))


#: Dtypes whose zeros are checked.
_SIGNED = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
#: Operators whose result may be either of two equal zeros.
_EITHER = ("maximum", "minimum", "fmax", "fmin", "relu", "clamp", "clamp_min", "clamp_max", "hardtanh", "threshold")
#: Operators that copy elements unchanged.
_COPIES = frozenset(
    ("clone", "_to_copy", "copy", "cat", "stack", "detach", "contiguous", "index_select", "gather", "flip", "roll")
)  # fmt: skip


class Mixes(Exception):
    """The reference does not work elementwise."""


def is_elementwise(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Run an operator that works elementwise, as a watch of the dispatcher. Raises Mixes for others."""
    name = func.overloadpacket.__name__.removesuffix("_")
    if not (torch.Tag.pointwise in func.tags or func.is_view or name in _COPIES):
        raise Mixes
    return func(*args, **kwargs)


def _of_one_zero(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    if func.overloadpacket.__name__.removesuffix("_") in _EITHER:
        raise Mixes
    return is_elementwise(func, args, kwargs)


def _zeros_of_one_sign(native: Tensor, want: Tensor) -> Tensor:
    """Return where both answers are zeros, of one sign."""
    if native.dtype not in _SIGNED:
        return torch.zeros_like(native, dtype=torch.bool)
    return (native == 0) & (want == 0) & (native.signbit() == want.signbit())


def other_mode_differs(task: Task, args: Sequence[Any]) -> bool:
    """Return whether the Model, which draws nothing, answers differently in the mode (training, eval) that is not
    used."""
    module = task.module()
    if task.form is TaskForm.NATIVE or module.evaluates:
        return False
    model = module.new_model().to(device_of(args) or "cpu")
    model.train(not model.training)
    # Training mode writes running statistics into the state.
    inputs = [a.clone() if isinstance(a, torch.Tensor) else a for a in args]
    try:
        with torch.no_grad():
            other_mode = module.flatten(module.call(inputs, model))
    except (TaskError, RuntimeError, ValueError, AssertionError):
        return False  # there is no answer in that mode
    usual = module.called(args)[0]
    if [(a.shape, a.dtype) for a in usual] != [(b.shape, b.dtype) for b in other_mode]:
        return True
    pairs = zip(map(computable, usual), map(computable, other_mode), strict=True)
    return not all(torch.allclose(a, b, equal_nan=True) for a, b in pairs)
