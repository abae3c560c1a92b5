"""Inputs of which all rows are one row in memory, as ``Tensor.expand`` makes them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kernellab.task import ArgKind
from kernellab.verifier.protocol.memory import Layout, lay_out

if TYPE_CHECKING:
    from kernellab.task.task import Arg
    from kernellab.verifier.cases.cases import Case


def with_equal_rows(case: Case) -> Case:
    """The case with the first row of each tensor of two or more dimensions in place of all of its rows; weights stay as
    they are."""
    import torch

    def of(spec: Arg, arg: Any) -> Any:
        wide = isinstance(arg, torch.Tensor) and arg.dim() >= 2 and arg.shape[0] > 1
        return arg[:1].expand(arg.shape).contiguous() if wide and _is_input(spec) else arg

    return replace(case, held=tuple(of(spec, a) for spec, a in zip(case.task.args, case.args, strict=True)))


def expanded(case: Case) -> Layout:
    """A layout for the arguments of such a case in which those rows lie in one place."""
    plain = lay_out(case.args)
    places = tuple(
        replace(p, strides=(0, *p.strides[1:])) if _is_input(spec) and len(p.shape) >= 2 and 0 not in p.shape else p
        for spec, p in zip(case.task.args, plain.places, strict=True)
    )
    return Layout(places, plain.size)


def _is_input(spec: Arg) -> bool:
    return spec.kind is ArgKind.TENSOR and not spec.static
