"""Convert a failure to :class:`~kernellab.records.Evidence`: what is wrong, where, and a cell that reproduces it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kernellab.dsls.base import Adapter
from kernellab.records import CompilerLine, Evidence, Source
from kernellab.task import Task
from kernellab.task.dtypes import computable
from kernellab.verifier.cases.cases import Case
from kernellab.verifier.compare import error_places, signature
from kernellab.verifier.compare.compare import Mismatch, Reference
from kernellab.verifier.judge.process import WorkerFailure

if TYPE_CHECKING:
    import torch

    Tensor = torch.Tensor

#: Characters of a worker's log that evidence keeps, from its end.
_LOG = 20_000
#: Diagnostics of a compiler, and frames of an exception, that evidence keeps.
_MOST_LINES, _MOST_FRAMES = 20, 5


def of_mismatch(
    source: Source, case: Case, output: int, got: Tensor | None, reference: Reference | None, mismatch: Mismatch,
    *, earlier: Sequence[Tensor] = (), name: str | None = None, edge: bool = True,
) -> Evidence:  # fmt: skip
    """Return the evidence of a wrong output; ``name`` overrides the signature that the numbers suggest. ``edge``:
    whether a partial tile may be the cause."""
    base: dict[str, Any] = {
        "sizes": dict(case.sizes) or static_sizes(case.task),
        "family": case.family.value,
        "seed": None if case.change or case.held else case.seed,
        "output": output,
        "reproduction": reproduction(source, case),
    }
    if got is None or reference is None or mismatch.wrong is None:
        return Evidence(signature=name or mismatch.rule, **base)
    inputs = [a for a in case.args if hasattr(a, "shape")]
    shown, expected = (t.abs() if t.is_complex() else computable(t) for t in (got, reference.want))
    wrong = mismatch.wrong
    if not bool(wrong.any()):
        # No single element is wrong: use the place of the largest error.
        difference = (shown - expected).abs()
        wrong = difference == difference.max()
    where = error_places.first_wrong(wrong)
    return Evidence(
        signature=name
        or signature.numeric(
            shown,
            expected,
            mismatch,
            earlier=earlier,
            inputs=inputs,
            fresh=signature.holds_fresh(got, mismatch.wrong),
            narrow=signature.stored_narrow(got, reference.native),
            edge=edge,
        ),
        first_wrong=where,
        got=_value(got, where),
        want=_value(reference.native, where),
        wrong_fraction=float(mismatch.wrong.double().mean()),
        rel_frobenius=_finite(mismatch.rel_frobenius),
        error_map=error_places.error_map(mismatch.wrong, shown),
        mapped=error_places.mapped(mismatch.wrong),
        repeats=error_places.repeats(mismatch.wrong),
        **base,
    )


def of_element(output: int, got: Tensor, want: Tensor, wrong: Tensor | None) -> dict[str, Any]:
    """Return the first wrong element of an output, as fields of :class:`~kernellab.records.tried.Tried`."""
    if wrong is None or not bool(wrong.any()):
        return {"output": output}
    where = error_places.first_wrong(wrong)
    return {"output": output, "first_wrong": where, "got": _value(got, where), "want": _value(want, where)}


def of_failure(adapter: Adapter, source: Source, failure: WorkerFailure, case: Case | None = None) -> Evidence:
    """Return the evidence of a worker that crashed, hung, raised or sent an invalid answer."""
    lines = compiler_lines(adapter, source, failure)
    names = {"exception": _exception_name(failure), "output": "output"}
    return Evidence(
        signature=names.get(failure.kind, failure.kind),
        sizes=dict(case.sizes) if case else {},
        family=case.family.value if case else None,
        compiler=lines,
        log=(failure.log + "\n" + str(failure.detail.get("trace", "")) + "\n").strip()[-_LOG:],
        reproduction=reproduction(source, case) if case else "",
    )


def as_race(report: Evidence | None) -> Evidence | None:
    """Return the evidence of a result that is right in one call and wrong in another as a race. A crash, a hang, a
    process left running and an out-of-bounds write keep their signature."""
    if report is None or report.output is None or report.signature == "out-of-bounds":
        return report
    return report.model_copy(update={"signature": "race"})


def compiler_lines(adapter: Adapter, source: Source, failure: WorkerFailure) -> list[CompilerLine]:
    """Return the DSL's interpretation of the log, else the exception's frames in the source's files (innermost
    first)."""
    detail = failure.detail
    text = "\n".join((failure.log, str(detail.get("trace", "")) or failure.message))
    lines = list(adapter.explain(text, source))
    if lines:
        return lines[:_MOST_LINES]
    frames = detail.get("frames")
    frames = frames if isinstance(frames, list) else []
    own_frames = [f for f in frames if isinstance(f, dict) and f.get("file") in source.files]
    first = failure.message.strip().splitlines()
    message = (first[0] if first else failure.kind)[:500] + inside(failure)
    return [
        CompilerLine(file=f["file"], line=f["line"] if isinstance(f.get("line"), int) else None, message=message)
        for f in reversed(own_frames)
    ][:_MOST_FRAMES]


def inside(failure: WorkerFailure) -> str:
    """Return `` (in torch/cuda/__init__.py, line 512)`` if an exception arose in a library; else an empty string."""
    where = failure.detail.get("inside")
    own = not isinstance(where, str) or not where or where.startswith("kernellab/")
    return "" if own else f" (in {str(where)[:200]})"


def reproduction(source: Source, case: Case) -> str:
    """Return a self-contained notebook cell that runs the failing case and shows both sides; "" if no seed reproduces
    its arguments."""
    if case.held:
        return ""
    return "\n".join(
        (
            "from kernellab.verifier import reproduce",
            "",
            f"task = {case.task.text!r}",
            f"source = {source.model_dump(mode='json', exclude={'line_map'})!r}",
            f"args, got, want = reproduce(task, source, sizes={dict(case.sizes)!r}, family={case.family.value!r}, "
            f"seed={case.seed}" + (f", change={case.change!r})" if case.change else ")"),
            "for g, w in zip(got, want):",
            "    print(g.shape, w.shape, 'largest difference', (g.double() - w.double()).abs().max().item())",
            "",
        )
    )


#: Signatures of exceptions that have their own remedy.
_EXCEPTIONS = {
    "SyntaxError": "syntax", "ImportError": "import", "ModuleNotFoundError": "import", "PermissionError": "denied",
}  # fmt: skip


def _exception_name(failure: WorkerFailure) -> str:
    kind = str(failure.detail.get("type", "exception"))
    return _EXCEPTIONS.get(kind, "exception")


def static_sizes(task: Task) -> dict[str, int]:
    """Return the first tensor's extents for a task with fixed shapes, so that the reader sees the failing size."""
    first = next(iter(task.tensors), None)
    return {f"{first.name}.{i}": int(n) for i, n in enumerate(first.shape)} if first and not task.dims else {}


#: Integers from here on are shown exactly, not as floats of six digits.
_EXACT = 10**6


def _value(tensor: Tensor, where: Sequence[int]) -> float | str:
    value = tensor[tuple(where)].item()
    if isinstance(value, int) and abs(value) >= _EXACT:
        return str(value)  # keep every digit of an integer
    number = float(value) if isinstance(value, (int, float, bool)) else math.nan
    return number if math.isfinite(number) else str(value)


def _finite(number: float | None) -> float | None:
    return number if number is not None and math.isfinite(number) else None
