"""Inputs that repeat one slice in memory along a dimension, as ``Tensor.expand`` makes them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from kernellab.task import ArgKind
from kernellab.verifier.protocol.memory import Layout, lay_out

if TYPE_CHECKING:
    from kernellab.verifier.cases.cases import Case


def with_equal_rows(case: Case, dim: int = 0) -> Case:
    """The case with the first slice along ``dim``, never the last dimension, in place of all of them, of each tensor of
    two or more dimensions; weights stay as they are."""

    def of(repeats: bool, arg: Any) -> Any:
        wide = isinstance(arg, torch.Tensor) and arg.dim() >= dim + 2 and arg.shape[dim] > 1
        return arg.narrow(dim, 0, 1).expand(arg.shape).contiguous() if wide and repeats else arg

    return replace(case, held=tuple(of(repeats, a) for repeats, a in zip(_repeats(case), case.args, strict=True)))


def expanded(case: Case, dim: int = 0) -> Layout:
    """A layout for the arguments of such a case in which those slices lie in one place."""
    plain = lay_out(case.args)
    places = tuple(
        replace(p, strides=(*p.strides[:dim], 0, *p.strides[dim + 1 :]))
        if repeats and len(p.shape) >= dim + 2 and 0 not in p.shape
        else p
        for repeats, p in zip(_repeats(case), plain.places, strict=True)
    )
    return Layout(places, plain.size)


def _repeats(case: Case) -> list[bool]:
    """Which arguments may repeat a slice: tensors that are no weights, and into which the reference does not write."""
    written = case.task.module().written
    return [
        spec.kind is ArgKind.TENSOR and not spec.static and i not in written for i, spec in enumerate(case.task.args)
    ]
