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
from kernellab.lowering.c_family.writer import Writer
from kernellab.lowering.cuda_c.access import access
from kernellab.lowering.cuda_c.elements import Context, ElementLoop, Line
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


def write_copies(group: Group, context: Context, writer: Writer) -> None:
    """Write a group of loads as asynchronous copies: vectors where one call copies them, else single elements."""
    loop = ElementLoop(group, context)
    vectors: list[Line] = []
    elements: list[Line] = []
    with context.ints.watch() as used:
        for nest in group.nests:
            is_wide, text = _copy(nest, loop)
            (vectors if is_wide else elements).append(Line(text, nest.line))
    loop.write(writer, used.names, vectors, elements, ())


def _copy(nest: Nest, loop: ElementLoop) -> tuple[bool, str]:
    """Return whether one call copies a vector, and the call."""
    assert isinstance(nest.value, Fetch) and nest.tile is not None
    region, ints = nest.value.region, loop.ints
    index = align(loop.group.vars, nest.tile.shape, ints)
    is_wide = loop.is_wide(region, index)
    at = loop.at_first(index) if is_wide else index
    site = access(region, at, ints)
    target = place(loop.context.name(nest.tile), at, nest.tile.shape, ints)
    inside = " && ".join(site.checks) or "true"
    source = f"{ints.tensor(region.tensor)}[{site.address}]"
    width = f"{loop.layout.name}::WIDE" if is_wide else "1"
    return is_wide, f"kl::copy<{width}>(&{target}, &{source}, {inside});"


__all__ = ["loads_ahead", "write_copies"]
