"""Other callers than the judge's one thread: threads, autograd, inference mode, other settings of torch, big programs.

A kernel that is wrong for one of them is refused where its caller changed nothing that affects the computation, and
marked where a caller may be asked not to do so. One that raises is only marked: its caller sees the exception.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from kernellab.conditions import Mark, MarkKind
from kernellab.errors import TaskError
from kernellab.task.dtypes import alike
from kernellab.verifier.cases.cases import Case
from kernellab.verifier.cases.selection import all_long
from kernellab.verifier.judge.process import WorkerFailure
from kernellab.verifier.protocol.rules import DRAWN

if TYPE_CHECKING:
    from kernellab.verifier.stages.candidate import Stages


class Caller(NamedTuple):
    """One kind of caller."""

    #: Operation of the worker that calls the kernel so.
    op: str
    #: Its calls, in words.
    words: str
    #: Mark of a kernel that answers wrongly; None: it is refused.
    if_wrong: MarkKind | None
    #: Mark of a kernel that raises; None: it has no mark, since the exception tells the caller.
    if_raised: MarkKind | None


_CALLERS = (
    Caller("threaded", "in calls from another thread", None, "one-thread"),
    Caller("together", "when two threads call it at once", "one-call-at-a-time", "one-call-at-a-time"),
    Caller("trained", "for inputs that require a gradient", None, "no-gradients"),
    Caller("inferred", "for inputs that torch's inference mode made", None, "no-inference-tensors"),
    Caller("widened", "where torch's default dtype is float64", "default-dtype", None),
    Caller("conjugated", "for views of conjugates and of negated numbers", "conjugates-misread", None),
    Caller("flushed", "where torch flushes denormals (torch.set_flush_denormal)", None, None),
    Caller("larger", "in a larger program (a deep stack, open files, threads that wait)", None, None),
)


def elsewhere(stages: Stages, small: Case) -> None:
    """Call the kernel as each of the other callers does, at the size of ``small``.

    Raises:
        Refused: The answer is wrong although the caller changed nothing that affects the computation.
    """
    module = stages.task.module()
    if (module.mutates and not stages.written) or module.numpy:
        return
    # Two calls overlap only if each takes a while.
    longer = all_long(stages.task, DRAWN.literal_bytes) or small
    for caller in _CALLERS:
        case = longer if caller.op == "together" else small
        if caller.op == "conjugated" and not any(isinstance(a, Tensor) and a.is_complex() for a in case.args):
            continue
        try:
            message = _error_message(stages, caller, case)
        except WorkerFailure:
            stages.restart_ended()
            mark = caller.if_raised
        else:
            if not message or _reference_differs(stages, caller, case):
                continue
            mark = caller.if_wrong
            if mark is None:
                reason = f"right where the judge calls it, but not {caller.words}: {message}"
                raise stages.refused(case, "environment", reason)
        if mark is not None:
            stages.context.findings.add(Mark(kind=mark))


def _error_message(stages: Stages, caller: Caller, case: Case) -> str:
    """Return what is wrong with the answer to a caller; "" if nothing is. Raises WorkerFailure."""
    call = stages.call(case, poison=False, op=caller.op)
    outputs = [stages.worker.read(o) for o in call.outputs]
    if caller.op == "widened":
        # Correct values in the dtype that the caller requested are acceptable.
        pairs = zip(outputs, case.native, strict=False)
        outputs = [o.to(native.dtype) if o.is_floating_point() else o for o, native in pairs]
    mismatch = stages.comparison.unlike(outputs, case.native)
    if mismatch is not None:
        return mismatch.message
    wrong = stages.comparison.first_wrong(case, outputs, counted=False)
    return wrong.mismatch.message if wrong is not None else ""


def _reference_differs(stages: Stages, caller: Caller, case: Case) -> bool:
    """Return whether the caller's setting of torch changes the reference's answer too."""
    if caller.op not in _SETTINGS:
        return False
    try:
        with _SETTINGS[caller.op]():
            outputs = stages.task.module().results(case.args)
    except TaskError:
        return True
    return not all(a.dtype is b.dtype and alike(a, b) for a, b in zip(outputs, case.native, strict=True))


@contextmanager
def _flushing_denormals() -> Iterator[None]:
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


@contextmanager
def _float64_by_default() -> Iterator[None]:
    usual = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(usual)


#: Operation of a caller to the setting of torch that it changes.
_SETTINGS: Mapping[str, Callable[[], AbstractContextManager[None]]] = {
    "flushed": _flushing_denormals,
    "widened": _float64_by_default,
}
