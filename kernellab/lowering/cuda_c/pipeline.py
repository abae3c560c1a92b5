"""Loops with prefetched loads: while a block multiplies one pair of tiles, the next pair is being copied.

``cp.async`` copies from global to shared memory without registers. Each tile has two buffers, which the iterations use
in turn; one barrier for each iteration is enough, since a buffer is filled again only after the barrier that follows
its last read."""

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
    """Return the groups at the start of the loop that only copy tensors to shared memory; none if prefetching them has
    no use."""
    if not step.loop.hints.pipeline or not any(isinstance(s, GemmCall) for s in step.body.steps):
        return []
    declared = {t.uid for t in step.body.declares}
    copies: list[Group] = []
    for inner in step.body.steps:
        if not isinstance(inner, Group) or not all(_is_copy(n, spaces, declared) for n in inner.nests):
            break
        copies.append(inner)
    copied = {n.tile.uid for g in copies for n in g.nests if n.tile is not None}
    rest = [s for s in step.body.steps if not any(s is g for g in copies)]
    writes = {n.tile.uid for s in rest if isinstance(s, Group) for n in s.nests if n.tile is not None}
    plain = all(isinstance(s, (Group, GemmCall)) for s in rest)
    return copies if plain and not writes & copied else []


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
    """Writes a group of loads as asynchronous copies."""

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
            quoted: set[int] = set()
            self._put(whole, quoted)
            self._each(layout.name, single, quoted, used.names)

    def _copy(self, nest: Nest, width: str) -> tuple[bool, str]:
        """Return whether one call copies ``width`` elements, and the call."""
        assert isinstance(nest.value, Fetch) and nest.tile is not None
        region = nest.value.region
        index = align(self.group.vars, nest.tile.shape, self.ints)
        wide = self._is_wide(region, index)
        at = self._at_first(index) if wide else index
        site = access(region, at, self.ints)
        target = place(self.k.name(nest.tile), at, nest.tile.shape, self.ints)
        inside = " && ".join(site.checks) or "true"
        source = f"{self.ints.tensor(region.tensor)}[{site.address}]"
        return wide, f"kl::copy<{width if wide else '1'}>(&{target}, &{source}, {inside});"


__all__ = ["CopyWriter", "loads_ahead"]
