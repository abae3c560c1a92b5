"""Reads and writes of the steps of a kernel: tiles by uid, tensors by name."""

from __future__ import annotations

from kernellab.lowering.c_family.fuse import FusedBlock, FusedIf, FusedLoop, FusedStep, Group
from kernellab.lowering.c_family.nests import Fetch, GemmCall, NestKind, ScanCall, SortCall, subvalues
from kernellab.lowering.cuda_c.placement import steps_of
from kernellab.sketch.program.program import Apply, Tensor, Value


def inside(step: FusedStep) -> list[Group | ScanCall | GemmCall]:
    """Return the groups and calls of a step: itself, or those inside a loop or condition."""
    if isinstance(step, (FusedLoop, FusedIf)):
        return [s for block in step.blocks for s in steps_of(block)]
    assert not isinstance(step, SortCall)
    return [step]


def reads(step: Group | ScanCall | GemmCall) -> set[str]:
    """Return the tiles and tensors that a step reads."""
    if isinstance(step, Group):
        names = set(step.reads)
        for value in (v for n in step.nests for v in subvalues(n.value)):
            tensor = value.region.tensor if isinstance(value, Fetch) else _gathered(value)
            names |= {tensor.name} if tensor is not None else set()
        return names
    return set(step.reads)


def _gathered(value: Value) -> Tensor | None:
    tensor = value.attr("tensor") if isinstance(value, Apply) and value.op == "gather" else None
    return tensor if isinstance(tensor, Tensor) else None


def writes(step: Group | ScanCall | GemmCall) -> set[str]:
    """Return the tiles and tensors that a step writes."""
    if isinstance(step, Group):
        tiles = set(step.writes)
        tiles |= {n.scatter.tensor.name for n in step.nests if n.scatter is not None}
        return tiles | {n.region.tensor.name for n in step.nests if n.region is not None}
    return set(step.writes)


def written_once(block: FusedBlock) -> set[str]:
    """Return the tiles that exactly one step writes."""
    writes: dict[str, list[NestKind]] = {}
    for step in steps_of(block):
        for nest in step.nests if isinstance(step, Group) else []:
            if nest.tile is not None:
                writes.setdefault(nest.tile.uid, []).append(nest.kind)
    return {uid for uid, kinds in writes.items() if len(kinds) == 1}


__all__ = ["inside", "reads", "writes", "written_once"]
