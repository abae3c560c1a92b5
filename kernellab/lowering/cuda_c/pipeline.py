"""Loops whose loads run ahead: while a block multiplies one pair of tiles, the next one is on its way.

``cp.async`` copies from global to shared memory without registers between. Each tile has two places, which the
iterations take in turn; one barrier an iteration is enough, for a place is filled again only after the barrier behind
its last read.
"""

from __future__ import annotations

from collections.abc import Mapping

from kernellab.lowering.c_family.fuse import FusedLoop, Group
from kernellab.lowering.c_family.index import align
from kernellab.lowering.c_family.nests import Fetch, GemmCall, Nest, NestKind
from kernellab.lowering.c_family.scalar import place
from kernellab.lowering.cuda_c.access import access
from kernellab.lowering.cuda_c.group import GroupWriter
from kernellab.lowering.cuda_c.placement import MemorySpace


def loads_ahead(step: FusedLoop, spaces: Mapping[str, MemorySpace]) -> list[Group]:
    """The groups at the head of the loop that only copy tensors to shared memory; none where that brings nothing."""
    if not step.loop.hints.pipeline or not any(isinstance(s, GemmCall) for s in step.body.steps):
        return []
    declared = {t.uid for t in step.body.declares}
    found: list[Group] = []
    for inner in step.body.steps:
        if not isinstance(inner, Group) or not all(_is_copy(n, spaces, declared) for n in inner.nests):
            break
        found.append(inner)
    copied = {n.tile.uid for g in found for n in g.nests if n.tile is not None}
    rest = [s for s in step.body.steps if not any(s is g for g in found)]
    writes = {n.tile.uid for s in rest if isinstance(s, Group) for n in s.nests if n.tile is not None}
    plain = all(isinstance(s, (Group, GemmCall)) for s in rest)
    return found if plain and not writes & copied else []


def _is_copy(nest: Nest, spaces: Mapping[str, MemorySpace], declared: set[str]) -> bool:
    tile, value = nest.tile, nest.value
    return (
        nest.kind is NestKind.POINT
        and tile is not None
        and tile.uid in declared
        and spaces.get(tile.uid) is MemorySpace.SHARED
        and isinstance(value, Fetch)
        and value.pad == 0
        and value.region.tensor.dtype is tile.dtype
    )


class CopyWriter(GroupWriter):
    """Writes a group of loads as copies that run on their own."""

    def emit(self) -> None:
        layout = self.k.layouts.of(self.group.domain)
        whole: list[tuple[str, int]] = []
        single: list[tuple[str, int]] = []
        with self.ints.watch() as used:
            for nest in self.group.nests:
                wide, line = self._copy(nest, f"{layout.name}::WIDE")
                (whole if wide else single).append((line, nest.line))
        self.w("#pragma unroll")
        with self.w.block(f"for (int at = 0; at < {layout.name}::ITEMS; at += {layout.name}::WIDE)"):
            self._positions(layout.name, layout.split, used.names)
            said: set[int] = set()
            self._put(whole, said)
            self._each(layout.name, single, said, used.names)

    def _copy(self, nest: Nest, width: str) -> tuple[bool, str]:
        """Whether one call copies ``width`` elements at once, and the call."""
        assert isinstance(nest.value, Fetch) and nest.tile is not None
        region = nest.value.region
        index = align(self.group.vars, nest.tile.shape, self.ints)
        wide = self._is_wide(region, index)
        at = self._at_first(index) if wide else index
        site = access(region, at, self.ints)
        target = place(self.k.name(nest.tile), at, nest.tile.shape, self.ints)
        inside = " && ".join(site.checks) or "true"
        given = f"{self.ints.tensor(region.tensor)}[{site.address}]"
        return wide, f"kl::copy<{width if wide else '1'}>(&{target}, &{given}, {inside});"


__all__ = ["CopyWriter", "loads_ahead"]
