"""Denormals, signs of zeros, and what a kernel leaves to its caller: modes of the processor, state of the process, its
arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from kernellab.conditions import Mark
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


#: of MXCSR: what the system gives a thread (no exception ends it), flush-to-zero with denormals-are-zero, and the two
#: bits of rounding
_DEFAULT, _FLUSHED, _ROUNDED = 0x1F80, 0x8040, 0x6000
#: what the system gives a thread for long doubles: traps masked, 64 bits, to the nearest
_X87 = 0x033F


def modes_kept(stages: Stages, case: Case) -> None:
    """What is in force in the thread that calls, after a call: read by the judge from the halted process.

    Denormals that are flushed for the caller too are a flag (-ffast-math does it when an object is loaded); they are
    restored before each call.

    Raises:
        Refused: numbers are rounded otherwise than before, or an exception of arithmetic ends the process.
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
    """What the worker tells of one call that is not timed: it finds errors, and no deceit that forges messages.

    Raises:
        Refused: the process's state or an argument is another than before, or the result has another form than the
            reference's.
    """
    try:
        layout = lay_out(case.args)
        stages.worker.write(0, layout, case.args)
        found = stages.worker.witness(layout, 0, stages.context.left(stages.call_deadline(case)))
    except WorkerFailure as failure:
        raise stages.failed("robust", failure, case) from failure
    changed, touched = found.get("changed"), found.get("touched")
    if isinstance(changed, list) and changed:
        raise stages.refused(case, "caller-state", f"leaves {shown(str(changed[0]))[:80]} changed for its caller")
    for i in touched if isinstance(touched, list) else ():
        if isinstance(i, int) and i in range(len(stages.task.args)) and i not in stages.written:
            name = stages.task.args[i].name
            message = f"leaves its input {name!r} as another tensor (memory, shape, strides, gradient or version)"
            raise stages.refused(case, "mutates-input", message)
    _form_kept(stages, case, found)
    if found.get("threads") is True:
        message = "leaves another number of threads for its caller (name it in the kernel's own loops instead)"
        raise stages.refused(case, "caller-state", message)


def _form_kept(stages: Stages, case: Case, found: dict[str, Any]) -> None:
    """A tensor for a tensor; more than one, in whatever they lie, for several."""
    module = stages.task.module()
    if module.numpy or stages.written:
        return
    before = torch.get_rng_state()
    with torch.no_grad():
        raw = module.call([a.clone() if isinstance(a, Tensor) else a for a in case.args])
    if found.get("random") is True and torch.equal(before, torch.get_rng_state()):
        message = "leaves torch's, NumPy's or Python's random numbers changed, which the reference does not use"
        raise stages.refused(case, "caller-state", message)
    several = raw if isinstance(raw, (tuple, list)) else [raw]
    needed = sum(t.untyped_storage().nbytes() for t in several if isinstance(t, Tensor))
    held = found.get("bytes")
    if isinstance(held, int) and needed and held > EDGES.oversized * needed + EDGES.oversized_bytes:
        stages.context.findings.add(Mark(kind="outputs-oversized"))
    form = found.get("form")
    if isinstance(raw, Tensor) and form in ("several", "a number"):
        raise stages.refused(case, "output", f"returns {form} where the reference returns a tensor")
    if found.get("none") is True and not (isinstance(raw, (tuple, list)) and any(r is None for r in raw)):
        raise stages.refused(case, "output", "returns None among its results, which the reference does not")
    if found.get("grad") is True and isinstance(raw, Tensor) and not raw.requires_grad:
        raise stages.refused(case, "output", "returns a leaf that requires a gradient")


def denormals(stages: Stages, base: Case) -> None:
    """Inputs so small that the answers are denormal: zeros in their place are the label ``denormals flushed``."""
    case = base.with_change(("scale", -1, EDGES.denormal))
    try:
        wanted = [r.native for r in case.references]
    except TaskError:
        return
    small = [_denormal(w) for w in wanted]
    if not any(bool(s.any()) for s in small):
        return
    try:
        layout = lay_out(case.args)
        stages.worker.write(0, layout, case.args)
        call = stages.worker.call(layout, (0,), stages.context.left(stages.call_deadline(case)))
        got = [stages.worker.read(o) for o in call.outputs]
    except WorkerFailure as failure:
        raise stages.failed("robust", failure, case) from failure
    for have, at in zip(got, small, strict=True):
        if have.shape == at.shape and bool(at.any()) and bool((have[at] == 0).double().mean() > EDGES.flushed):
            stages.context.findings.add(Mark(kind="denormals-flushed"))


def _denormal(values: Tensor) -> Tensor:
    if values.dtype not in (torch.float32, torch.float64):
        return torch.zeros_like(values, dtype=torch.bool)
    return (values != 0) & (values.abs() < torch.finfo(values.dtype).tiny)


def minus_zeros(stages: Stages, base: Case) -> None:
    """Zeros with a sign in each argument: where a reference that works element by element answers with -0, in float64
    too, a kernel's 0 is a flag. Of sums, and of what selects one of two equal zeros, nothing is said."""
    if stages.task.framework == "numpy":
        return  # nothing of its operations is seen
    seen, args = torch.Generator().manual_seed(base.seed), list(base.args)
    for i, (spec, value) in enumerate(zip(stages.task.args, base.args, strict=True)):
        open_ = spec.kind is not ArgKind.SCALAR and isinstance(value, Tensor) and value.dtype in _SIGNED
        if not open_ or spec.static:
            continue
        legal = legal_values(spec, value, stages.task.domain.get(spec.name))
        if legal.support in OPEN and legal.low <= 0 <= legal.high:
            drawn = (torch.rand(value.shape, generator=seen) < EDGES.zeros).to(value.device)
            args[i] = value.masked_fill(drawn, -0.0)
    case = base.given(tuple(args))
    try:
        with watching(_element_by_element):
            wanted = case.native
        at = [_minus_zero(r.native) & _minus_zero(r.want) for r in case.references]
    except (TaskError, _Mixes):
        return
    if not any(bool(a.any()) for a in at):
        return
    try:
        call = stages.call(case)
        got = [stages.worker.read(o) for o in call.outputs]
    except WorkerFailure as failure:
        raise stages.failed("robust", failure, case) from failure
    for have, want, minus in zip(got, wanted, at, strict=False):
        if have.dtype in _SIGNED and have.shape == want.shape and bool((minus & (have == 0) & ~have.signbit()).any()):
            stages.context.findings.add(Mark(kind="zeros-unsigned"))


#: dtypes whose zeros are looked at
_SIGNED = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
#: operators whose answer may be either of two equal zeros
_EITHER = ("maximum", "minimum", "fmax", "fmin", "relu", "clamp", "clamp_min", "clamp_max", "hardtanh", "threshold")
#: operators that move elements as they are
_COPIES = frozenset(
    ("clone", "_to_copy", "copy", "cat", "stack", "detach", "contiguous", "index_select", "gather", "flip", "roll")
)  # fmt: skip


class _Mixes(Exception):
    """The reference does not work element by element."""


def _element_by_element(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    name = func.overloadpacket.__name__.removesuffix("_")
    if name in _EITHER or not (torch.Tag.pointwise in func.tags or func.is_view or name in _COPIES):
        raise _Mixes
    return func(*args, **kwargs)


def _minus_zero(values: Tensor) -> Tensor:
    return (values == 0) & values.signbit() if values.dtype in _SIGNED else torch.zeros_like(values, dtype=torch.bool)


def other_mode_differs(task: Task, args: Sequence[Any]) -> bool:
    """Has the Model, which draws nothing, other answers in the mode (training, eval) in which it is not called?"""
    module = task.module()
    if task.form is TaskForm.NATIVE or module.evaluates:
        return False
    model = module.new_model().to(device_of(args) or "cpu")
    model.train(not model.training)
    # training writes running figures into its state
    given = [a.clone() if isinstance(a, torch.Tensor) else a for a in args]
    try:
        with torch.no_grad():
            other = module.flatten(module.call(given, model))
    except (TaskError, RuntimeError, ValueError, AssertionError):
        return False  # it has no other answer
    found = module.called(args)[0]
    if [(one.shape, one.dtype) for one in found] != [(two.shape, two.dtype) for two in other]:
        return True
    pairs = zip(map(computable, found), map(computable, other), strict=True)
    return not all(torch.allclose(one, two, equal_nan=True) for one, two in pairs)
