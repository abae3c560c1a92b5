"""Cases in which the last elements decide the output."""

from __future__ import annotations

import secrets
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from kernellab.errors import KernellabError
from kernellab.task import ArgKind
from kernellab.task.dtypes import finite
from kernellab.task.sample.draw import OPEN, Legal, Support
from kernellab.task.sample.inputs import Family
from kernellab.verifier.cases.input_specs import forms_of
from kernellab.verifier.survey.ranges import rises

if TYPE_CHECKING:
    from kernellab.verifier.cases.cases import Case

#: Dtypes of counts and indices.
_INTEGERS = ("int64", "int32", "int16", "int8", "uint8")


def decided_last(found: Case) -> Case:
    """Return a case in which the last elements decide the output; a kernel often skips these past some bound. Return
    ``found`` itself if the reference raises or is not finite for such values."""
    ranges = _last_elements(found)
    # A softmax over masked values is not finite for a row that is true throughout: then change only the numbers.
    numbers = [entry for entry in ranges if found.task.args[entry[0]].dtype != "bool"]
    for places in dict.fromkeys((tuple(ranges), tuple(numbers))):
        if not places:
            continue
        changed_case = replace(found, change=("last", -1, secrets.randbits(31), places))
        try:  # on the host, which caches the answer: an out-of-range index would disable a device
            outputs = (
                changed_case if changed_case.device == "cpu" else replace(changed_case, device="cpu", statics=None)
            ).native
        except (KernellabError, RuntimeError):
            continue
        if all(map(finite, outputs)):
            return changed_case
    return found


def _last_elements(found: Case) -> list[tuple[int, float, float]]:
    """Return the positions of the arguments whose last elements may change, with the range of values; for counts, whose
    last element repeats another, the range is empty."""
    # With float outputs, a sum of many equal terms is rounded.
    counts = all(o.dtype in (*_INTEGERS, "bool") for o in found.task.outputs)
    ranges = []
    for i, legal in enumerate(forms_of(found.task, found.sizes, found.device).legal):
        spec = found.task.args[i]
        if spec.kind is not ArgKind.TENSOR:
            continue
        if spec.dtype == "bool" and spec.name not in found.task.domain:
            ranges.append((i, 0.0, 1.0))
        elif counts and spec.dtype in _INTEGERS:
            is_fixed = found.task.domain.get(spec.name) in ("fixed", "sorted")
            if not is_fixed and _repeats(found.args[i]):
                ranges.append((i, 0.0, 0.0))
        # If no other family is legal, the reference may accept only floats like its own inputs.
        if found.family is not Family.OWN and (limits := _float_range(spec.dtype, legal)) is not None:
            ranges.append((i, *limits))
    return ranges


def _float_range(dtype: str, legal: Legal | None) -> tuple[float, float] | None:
    """Return the range of an argument's elements, finite so that a reproduction can contain them; None if it is no
    range."""
    if legal is None or dtype.startswith("float8") or legal.is_sorted or legal.support not in (*OPEN, Support.UNIT):
        return None
    most = torch.finfo(getattr(torch, dtype)).max / 64
    return max(legal.low, -most), min(legal.high, most)


def _repeats(value: Tensor) -> bool:
    """Return whether numbers repeat within unsorted rows, so that one number may occur often."""
    if not value.dim() or value.numel() < 2:
        return False
    # Treat a column as one row of numbers.
    rows = value.reshape(-1, value.shape[-1]) if value.shape[-1] > 1 else value.reshape(1, -1)
    return bool((rows.sort(-1).values.diff(dim=-1) == 0).any()) and not rises(rows)
