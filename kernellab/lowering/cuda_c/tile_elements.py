"""One element of a tile in each of the four memory spaces: how a group's loop reads it and writes it.

space      a read             a write
UNIFORM    name               const float name = ...;      declared by its first write in the kernel
LOCAL      name               const float name = ...;      declared by its first write in the loop
REGISTERS  name[at + v]       name[at + v] = ...;          the thread's elements, which the loop counts
SHARED     name[row * N + j]  name_v[v] = ...;             as a vector, which is stored after the elements
"""

from __future__ import annotations

from kernellab.lowering.c_family.fuse import Group
from kernellab.lowering.c_family.index import Index, align
from kernellab.lowering.c_family.scalar import place
from kernellab.lowering.c_family.types import MEMORY_TYPE, VALUE_TYPE
from kernellab.lowering.cuda_c.elements import Context
from kernellab.lowering.cuda_c.placement import MemorySpace
from kernellab.lowering.cuda_c.vectors import Vectors
from kernellab.sketch.program.program import Read, Tile


class TileElements:
    """Reads and writes elements of tiles in one group."""

    def __init__(self, group: Group, context: Context, vectors: Vectors) -> None:
        self._group, self._context, self._vectors = group, context, vectors
        #: uids of tiles in the loop's variables that are declared
        self._declared: set[str] = set()

    def space(self, tile: Tile) -> MemorySpace:
        return self._context.spaces[tile.uid]

    def read(self, read: Read, index: Index) -> str:
        """Return the element of a tile at ``index``."""
        tile = read.tile
        space, name = self.space(tile), self._context.name(tile)
        if space is MemorySpace.REGISTERS:
            return f"{name}[at + v]"
        if space is not MemorySpace.SHARED:
            return name
        vector = self._vectors.of_tile(tile)
        if vector is not None and index == align(self._group.vars, tile.shape, self._context.ints):
            return f"{vector}[v]"
        text = place(name, index, tile.shape, self._context.ints)
        return f"float({text})" if MEMORY_TYPE[tile.dtype] != VALUE_TYPE[tile.dtype] else text

    def write(self, tile: Tile, text: str) -> str:
        """Return the statement that sets the group's current element of ``tile`` to ``text``."""
        space, name = self.space(tile), self._context.name(tile)
        if space is MemorySpace.REGISTERS:
            return f"{name}[at + v] = {text};"
        if space is MemorySpace.UNIFORM:
            return f"{self._context.declare(tile)}{name} = {text};"
        if space is MemorySpace.LOCAL:
            return f"{self._declare_local(tile)}{name} = {text};"
        if not self._group.dims:
            return f"if (threadIdx.x == 0) {name}[0] = {text};"
        vector = self._vectors.store_to_tile(tile, align(self._group.vars, tile.shape, self._context.ints))
        return f"{vector}[v] = {text};"

    def _declare_local(self, tile: Tile) -> str:
        """Return the type before the first write of a tile in a variable of the loop, else ""."""
        if tile.uid in self._declared:
            return ""
        self._declared.add(tile.uid)
        writes = sum(n.tile is not None and n.tile.uid == tile.uid for n in self._group.nests)
        return f"{'const ' if writes == 1 else ''}{VALUE_TYPE[tile.dtype]} "


__all__ = ["TileElements"]
