"""What a call leaves to its caller: processor modes, process state, its arguments, and the form of its results.

The judge reads processor modes from the stopped process. Everything else comes from a report of the worker on one
untimed call (a dictionary by the words ``changed``, ``touched``, ``imported``, ``random``, ``bytes``, ``form``,
``none``, ``grad``, ``threads``), which detects errors and no forged messages: what it says is read with care.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from kernellab.conditions import Mark
from kernellab.conditions.code import ImportChanges
from kernellab.task import TaskForm
from kernellab.verifier.attribution.counters import Unseen, rounding_modes, x87_modes
from kernellab.verifier.judge.process import WorkerFailure
from kernellab.verifier.protocol.memory import lay_out
from kernellab.verifier.protocol.rules import EDGES
from kernellab.verifier.protocol.sanitize import shown
from kernellab.verifier.stages.context import has_model

if TYPE_CHECKING:
    from kernellab.verifier.cases.cases import Case
    from kernellab.verifier.stages.candidate import Stages


#: MXCSR bits: the system's default for a thread (exceptions masked), flush-to-zero with denormals-are-zero, and the two
#: rounding bits.
_MXCSR_DEFAULT, _MXCSR_FLUSHED, _MXCSR_ROUNDING = 0x1F80, 0x8040, 0x6000
#: x87 control word that the system gives a thread: exceptions masked, 64 bits, round to nearest.
_X87_DEFAULT = 0x033F
#: Number of the worker's words that a condition repeats, and characters of one.
_MOST_WORDS, _MOST_CHARACTERS = 4, 80


def modes_kept(stages: Stages, case: Case) -> None:
    """Check the modes of the calling thread after a call, read by the judge from the stopped process.

    Denormals left flushed for the caller are a flag (-ffast-math does it when an object is loaded); the mode is
    restored before each call.

    Raises:
        Refused: The rounding mode changed, or an arithmetic exception would end the process.
    """
    try:
        stages.call(case, poison=False)
        mxcsr = rounding_modes(stages.worker.pid).get(stages.worker.pid, _MXCSR_DEFAULT)
        x87 = x87_modes(stages.worker.pid)
    except Unseen:
        return
    except WorkerFailure as failure:
        raise stages.failed("robust", failure, case) from failure
    message = ""
    if mxcsr & _MXCSR_ROUNDING:
        message = "changes the rounding mode of the calling thread"
    elif mxcsr & _MXCSR_DEFAULT != _MXCSR_DEFAULT:
        message = "leaves a trap for NaN, infinities or rounding in the calling thread"
    elif x87 != _X87_DEFAULT:
        message = "changes the x87 control word of the calling thread (long double)"
    if message:
        raise stages.refused(case, "rounding-mode", message)
    if mxcsr & _MXCSR_FLUSHED:
        stages.context.findings.add(Mark(kind="denormals-left-flushed"))


def left_to_caller(stages: Stages, case: Case) -> None:
    """Check the caller's state as the worker reports it for one untimed call.

    Raises:
        Refused: The process's state or an argument changed, or the result has another form than the reference's.
    """
    try:
        layout = lay_out(case.args)
        stages.worker.write(0, layout, case.args)
        report = stages.worker.witness(layout, 0, stages.context.left(stages.call_deadline(case)))
    except WorkerFailure as failure:
        raise stages.failed("robust", failure, case) from failure
    _look_at_import(stages, report.get("imported"))
    changed = report.get("changed")
    if isinstance(changed, list) and changed:
        raise stages.refused(case, "caller-state", f"leaves {_quoted(changed[0])} changed for its caller")
    _require_same_arguments(stages, case, report.get("touched"))
    _look_at_results(stages, case, report)
    if report.get("threads") is True:
        message = "leaves another number of threads for its caller (name it in the kernel's own loops instead)"
        raise stages.refused(case, "caller-state", message)


def _quoted(word: object) -> str:
    return shown(str(word))[:_MOST_CHARACTERS]


def _look_at_import(stages: Stages, changed: object) -> None:
    """Report what the import of the kernel changed for the whole program. A Model's constructor draws its weights."""
    if not isinstance(changed, list):
        return
    words = [_quoted(word) for word in changed]
    if stages.task.form is TaskForm.KERNELBENCH or has_model(stages.source):
        words = [word for word in words if word != "random numbers"]
    if words:
        rest = [f"{len(words) - _MOST_WORDS} more"] if len(words) > _MOST_WORDS else []
        stages.context.findings.add(ImportChanges(changed=(*words[:_MOST_WORDS], *rest)))


def _require_same_arguments(stages: Stages, case: Case, touched: object) -> None:
    """Refuse if the worker's ``touched`` names an argument that only the kernel writes into."""
    for i in touched if isinstance(touched, list) else ():
        if isinstance(i, int) and i in range(len(stages.task.args)) and i not in stages.written:
            name = stages.task.args[i].name
            message = f"leaves its input {name!r} as another tensor (memory, shape, strides, gradient or version)"
            raise stages.refused(case, "mutates-input", message)


def _look_at_results(stages: Stages, case: Case, report: Mapping[str, Any]) -> None:
    """Check random numbers, the memory that the results hold, and their form, next to a call of the reference."""
    module = stages.task.module()
    if module.numpy or stages.written:
        return
    before = torch.get_rng_state()
    with torch.no_grad():
        results = module.call([a.clone() if isinstance(a, Tensor) else a for a in case.args])
    if report.get("random") is True and torch.equal(before, torch.get_rng_state()):
        message = "leaves torch's, NumPy's or Python's random numbers changed, which the reference does not use"
        raise stages.refused(case, "caller-state", message)
    if _is_oversized(report.get("bytes"), results):
        stages.context.findings.add(Mark(kind="outputs-oversized"))
    _require_form(stages, case, report, results)


def _is_oversized(held_bytes: object, results: object) -> bool:
    """Return whether the kernel's results hold much more memory than the reference's ``results`` do."""
    tensors = [t for t in (results if isinstance(results, (tuple, list)) else [results]) if isinstance(t, Tensor)]
    needed = sum(t.untyped_storage().nbytes() for t in tensors)
    most = EDGES.oversized_factor * needed + EDGES.oversized_bytes
    return isinstance(held_bytes, int) and bool(needed) and held_bytes > most


def _require_form(stages: Stages, case: Case, report: Mapping[str, Any], results: object) -> None:
    """Refuse another form than that of the reference's ``results``: a tensor for a tensor; several, in any container,
    for several."""
    form = report.get("form")
    message = ""
    if isinstance(results, Tensor) and form in ("several", "a number"):
        message = f"returns {form} where the reference returns a tensor"
    elif report.get("none") is True and not (isinstance(results, (tuple, list)) and any(r is None for r in results)):
        message = "returns None among its results, which the reference does not"
    elif report.get("grad") is True and isinstance(results, Tensor) and not results.requires_grad:
        message = "returns a leaf that requires a gradient"
    if message:
        raise stages.refused(case, "output", message)
