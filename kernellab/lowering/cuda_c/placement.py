"""The memory spaces of a kernel's tiles, and their layouts over the threads of a block."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from kernellab.errors import LoweringError
from kernellab.lowering.c_family.fuse import FusedBlock, FusedIf, FusedLoop, Group, Place, Placer
from kernellab.lowering.c_family.index import ZERO, align, leaves
from kernellab.lowering.c_family.ints import Ints
from kernellab.lowering.c_family.nests import Fetch, GemmCall, Nest, NestKind, ScanCall, SortCall
from kernellab.lowering.cuda_c.access import wide_when
from kernellab.sketch.program.ints import IntExpr, IntKind


class MemorySpace(str, Enum):
    """``UNIFORM``: one element, the same in every thread. ``LOCAL``: a scalar inside one element loop.

    ``REGISTERS``: each thread holds some elements. ``SHARED``: shared memory, for elements that other threads read."""

    UNIFORM = "uniform"
    LOCAL = "local"
    REGISTERS = "registers"
    SHARED = "shared"


@dataclass(frozen=True)
class Layout:
    """A shape's elements over the threads: ``kl::Layout`` of that name; dimensions before ``split`` are its rows."""

    name: str
    #: the extents that are not 1
    extents: tuple[IntExpr, ...]
    split: int
    #: threads side by side along a row, at most
    side: int
    #: may a thread hold neighbouring columns? Else neighbouring threads do: a tensor is read in steps or at any offset
    wide: bool


class Layouts:
    """One layout for each shape of a kernel, so that an element belongs to the same thread in every loop."""

    def __init__(self, ints: Ints, block: FusedBlock) -> None:
        self.ints = ints
        self._splits: dict[tuple[str, ...], int] = {}
        self._products: set[tuple[str, ...]] = set()
        self._apart: set[tuple[str, ...]] = set()
        self.used: dict[tuple[str, ...], Layout] = {}
        self._visit(block)

    def _visit(self, block: FusedBlock) -> None:
        for step in block.steps:
            if isinstance(step, FusedLoop):
                self.ints.loops[step.loop.var] = step.loop
                self._visit(step.body)
                del self.ints.loops[step.loop.var]
                continue
            for inner in step.blocks:
                self._visit(inner)
            if isinstance(step, Group):
                for nest in step.nests:
                    self._split_for(nest)
                if not all(_is_wide(step, nest, self.ints) for nest in step.nests):
                    self._apart.add(self._key(step.domain))
            elif isinstance(step, GemmCall):
                self._products.add(self._key(step.acc.shape))

    def of(self, shape: tuple[IntExpr, ...]) -> Layout:
        key = self._key(shape)
        if key not in self.used:
            extents = self.real(shape)
            name = "_".join(["Tile", *(_label(self.ints.fold(e), e) for e in extents)])
            taken = {layout.name for layout in self.used.values()}
            while name in taken:
                name += "_"
            split = self._splits.get(key, max(len(extents) - 1, 0))
            side = 16 if key in self._products else 32
            self.used[key] = Layout(name, extents, split, side, key in self._products or key not in self._apart)
        return self.used[key]

    def real(self, shape: tuple[IntExpr, ...]) -> tuple[IntExpr, ...]:
        return tuple(e for e in shape if not self.ints.is_one(e))

    def _key(self, shape: tuple[IntExpr, ...]) -> tuple[str, ...]:
        return tuple(str(self.ints.fold(e)) for e in self.real(shape))

    def _split_for(self, nest: Nest) -> None:
        """Record the split between rows and columns that a reduction needs, which folds either all rows or all columns.
        Raises LoweringError if it folds neither, or if another one needs another split."""
        if nest.kind is not NestKind.REDUCE:
            return
        real = [d for d, e in enumerate(nest.domain) if not self.ints.is_one(e)]
        folded = [d in nest.axes for d in real]
        if all(folded) or not any(folded):
            return
        changes = [n for n in range(1, len(folded)) if folded[n] != folded[n - 1]]
        key = self._key(nest.domain)
        if len(changes) != 1 or self._splits.setdefault(key, changes[0]) != changes[0]:
            raise LoweringError(
                f"Line {nest.line}: CUDA-C reduces leading or trailing axes of a tile, and the same way wherever a "
                "tile of this shape is reduced.",
                "Reduce one axis after the other, or lower with --dsl triton.",
            )


class Placement(Placer):
    """Decide the :class:`MemorySpace` of every tile."""

    def spaces(self, block: FusedBlock) -> dict[str, MemorySpace]:
        self._collect(block, 0)
        return {uid: self._space(uid) for uid in self._tiles}

    def _space(self, uid: str) -> MemorySpace:
        place = self._place(uid)
        if place is Place.VARIABLE:
            return MemorySpace.UNIFORM
        if place is Place.LOCAL:
            return MemorySpace.LOCAL
        uses = self._uses[uid]
        return (
            MemorySpace.REGISTERS
            if all(self._stays(uid, *u) for u in (*uses.writers, *uses.readers))
            else MemorySpace.SHARED
        )

    def _stays(self, uid: str, step: object, nest: Nest | None) -> bool:
        """Is each element accessed only by the thread that holds it?"""
        tile = self._tiles[uid]
        if isinstance(step, GemmCall):
            return step.acc.uid == uid and uid not in {getattr(t, "uid", "") for t in (step.a, step.b)}
        if not isinstance(step, Group) or nest is None:
            return False
        if nest.kind is NestKind.REDUCE and nest.tile is not None and nest.tile.uid == uid:
            return False
        return self.ints.same_shape(step.domain, tile.shape) and self._pointwise_reads(step, uid)


def _is_wide(group: Group, nest: Nest, ints: Ints) -> bool:
    """Can all reads of tensors by ``nest`` along its innermost dimension be vector accesses?"""
    last = group.innermost
    for leaf, index in leaves(nest.value, align(group.vars, nest.value.type.shape, ints), ints):
        if isinstance(leaf, Fetch) and (last or ZERO) in index and wide_when(leaf.region, index, last, ints) is None:
            return False
    return True


def steps_of(block: FusedBlock) -> list[Group | ScanCall | GemmCall]:
    """Return every group and call in ``block``, in order. Raises LoweringError for a sort."""
    steps: list[Group | ScanCall | GemmCall] = []
    for step in block.steps:
        if isinstance(step, SortCall):
            raise LoweringError("CUDA-C has no sort.", "Lower with --dsl triton or --dsl cpp.", step.line)
        if isinstance(step, (FusedLoop, FusedIf)):
            steps += [s for inner in step.blocks for s in steps_of(inner)]
        else:
            steps.append(step)
    return steps


def _label(folded: IntExpr, expr: IntExpr) -> str:
    if expr.kind is IntKind.OP and folded.kind is IntKind.NUM:
        return str(folded.value)
    return re.sub(r"\W+", "_", str(expr)).strip("_")


__all__ = ["Layout", "Layouts", "MemorySpace", "Placement", "steps_of"]
