"""Errors of torch's exporter as sentences: which line cannot be traced, why, and what to write instead."""

from __future__ import annotations

import re
from typing import Any

from kernellab.capture.size_terms import REMEDY
from kernellab.errors import CaptureError
from kernellab.task import Task


def explained(task: Task, module: Any, error: BaseException) -> CaptureError:
    """Return what stops the trace, in a sentence with the line of the reference, and what to write instead."""
    line = _line_of_error(task, module, error)
    at = f"line {line} of {task.name!r}" if line else f"the reference of {task.name!r}"
    text = str(error)
    if "DataDependent" in type(error).__name__ or "data-dependent" in text or "item()" in text:
        return CaptureError(
            f"{at.capitalize()} decides by a tensor's values (data-dependent control flow or a read of a value).",
            "Use torch.where instead of if, and keep values in tensors.",
        )
    if ".numpy()" in text or "numpy" in type(error).__module__:
        return CaptureError(
            f"{at.capitalize()} leaves PyTorch for NumPy, so that it cannot be traced.",
            "Write the reference in PyTorch alone or in NumPy alone.",
        )
    if _causes(error) & {"PendingUnbackedSymbolNotFound", "DynamicOutputShapeException"}:
        return CaptureError(
            f"{at.capitalize()} makes a tensor whose size PyTorch knows by its values only.",
            "State that size: fix the Dim that it comes from, or compute the places by arange and comparisons.",
        )
    if "specialized" in text or "Constraints violated" in text:
        return CaptureError(f"{at.capitalize()} works for one size of a Dim only.", "Declare that extent as fixed.")
    first = next((s for s in text.strip().splitlines() if s.strip()), type(error).__name__)
    return CaptureError(f"{at.capitalize()} cannot be traced: {first.strip()[:200]}", REMEDY)


def _causes(error: BaseException | None) -> set[str]:
    """Return the types' names of an exception and of those that it came from."""
    names = set()
    while error is not None:
        names.add(type(error).__name__)
        error = error.__cause__ or error.__context__
    return names


def _line_of_error(task: Task, module: Any, error: BaseException | None) -> int:
    line = 0
    while error is not None:
        trace = error.__traceback__
        while trace:
            if trace.tb_frame.f_code.co_filename == module.filename:
                line = trace.tb_lineno
            trace = trace.tb_next
        match = re.search(re.escape(module.filename) + r'",? line (\d+)', str(error))
        if match:
            line = int(match.group(1))
        error = error.__cause__ or error.__context__
    return line
