"""What the steps of a kernel read and write: tiles by uid, tensors by name."""

from __future__ import annotations

from kernellab.lowering.c_family.fuse import FusedBlock, FusedIf, FusedLoop, FusedStep, Group
from kernellab.lowering.c_family.nests import Fetch, GemmCall, NestKind, ScanCall, SortCall, subvalues, tiles_read
from kernellab.lowering.cuda_c.homes import steps_of
from kernellab.sketch.program.program import Apply, Tensor, Value


def inside(step: FusedStep) -> list[Group | ScanCall | GemmCall]:
    if isinstance(step, FusedLoop):
        return steps_of(step.body)
    if isinstance(step, FusedIf):
        return steps_of(step.then) + steps_of(step.orelse)
    assert not isinstance(step, SortCall)
    return [step]


def reads(step: Group | ScanCall | GemmCall) -> set[str]:
    if isinstance(step, Group):
        found = {u for n in step.nests for u in tiles_read(n.value)}
        for value in (v for n in step.nests for v in subvalues(n.value)):
            tensor = value.region.tensor if isinstance(value, Fetch) else _gathered(value)
            found |= {tensor.name} if tensor is not None else set()
        return found
    return {t.uid for t in (step.source if isinstance(step, ScanCall) else step.tiles)}


def _gathered(value: Value) -> Tensor | None:
    tensor = value.attr("tensor") if isinstance(value, Apply) and value.op == "gather" else None
    return tensor if isinstance(tensor, Tensor) else None


def writes(step: Group | ScanCall | GemmCall) -> set[str]:
    if isinstance(step, Group):
        tiles = {n.tile.uid for n in step.nests if n.tile is not None}
        tiles |= {n.scatter.tensor.name for n in step.nests if n.scatter is not None}
        return tiles | {n.region.tensor.name for n in step.nests if n.region is not None}
    return {step.tile.uid if isinstance(step, ScanCall) else step.acc.uid}


def written_once(block: FusedBlock) -> set[str]:
    writes: dict[str, list[NestKind]] = {}
    for step in steps_of(block):
        for nest in step.nests if isinstance(step, Group) else []:
            if nest.tile is not None:
                writes.setdefault(nest.tile.uid, []).append(nest.kind)
    return {uid for uid, kinds in writes.items() if len(kinds) == 1}


__all__ = ["inside", "reads", "writes", "written_once"]
