"""Cases whose last elements decide."""

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
from kernellab.verifier.cases.ranges import rises

if TYPE_CHECKING:
    from kernellab.verifier.cases.cases import Case

#: dtypes of counts and places
_INTEGERS = ("int64", "int32", "int16", "int8", "uint8")


def decided_last(found: Case) -> Case:
    """A case in which the last elements decide: past a bound a kernel often leaves these out. ``found`` itself where
    the reference takes no such values: it raises, or is not finite."""
    ranges = _last_elements(found)
    # of a softmax over what a mask leaves, a row that is true throughout is not finite: then the numbers alone decide
    numbers = [one for one in ranges if found.task.args[one[0]].dtype != "bool"]
    for places in dict.fromkeys((tuple(ranges), tuple(numbers))):
        if not places:
            continue
        other = replace(found, change=("last", -1, secrets.randbits(31), places))
        try:  # on the host, where the case keeps its answer: an index past an end would make a device useless
            outputs = (other if other.device == "cpu" else replace(other, device="cpu", statics=None)).native
        except (KernellabError, RuntimeError):
            continue
        if all(map(finite, outputs)):
            return other
    return found


def _last_elements(found: Case) -> list[tuple[int, float, float]]:
    """Positions of the arguments whose last elements may be others, each with the range of these; of counts, whose last
    element repeats another, the range is empty."""
    # of floats, a sum of many equal terms is rounded
    counts = all(o.dtype in (*_INTEGERS, "bool") for o in found.task.outputs)
    ranges = []
    for i, legal in enumerate(forms_of(found.task, found.sizes, found.device).legal):
        spec = found.task.args[i]
        if spec.kind is not ArgKind.TENSOR:
            continue
        if spec.dtype == "bool" and spec.name not in found.task.domain:
            ranges.append((i, 0.0, 1.0))
        elif counts and spec.dtype in _INTEGERS:
            stated = found.task.domain.get(spec.name) in ("fixed", "sorted")
            if not stated and _repeats(found.args[i]):
                ranges.append((i, 0.0, 0.0))
        # where no other family is legal, the reference may take the floats of its inputs alone
        if found.family is not Family.OWN and (limits := _float_range(spec.dtype, legal)) is not None:
            ranges.append((i, *limits))
    return ranges


def _float_range(dtype: str, legal: Legal | None) -> tuple[float, float] | None:
    """What the elements of an argument may be: finite, so that a reproduction can write them down; None if that is not
    a range of numbers."""
    if legal is None or dtype.startswith("float8") or legal.is_sorted or legal.support not in (*OPEN, Support.UNIT):
        return None
    most = torch.finfo(getattr(torch, dtype)).max / 64
    return max(legal.low, -most), min(legal.high, most)


def _repeats(value: Tensor) -> bool:
    """Do numbers come twice in a row, in no order? Then one may come often."""
    if not value.dim() or value.numel() < 2:
        return False
    # a column is one row of numbers
    rows = value.reshape(-1, value.shape[-1]) if value.shape[-1] > 1 else value.reshape(1, -1)
    return bool((rows.sort(-1).values.diff(dim=-1) == 0).any()) and not rises(rows)
