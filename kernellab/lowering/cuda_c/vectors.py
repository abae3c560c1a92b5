"""Vectors of a group's loop: several elements of a tensor, or of a tile in shared memory, that move in one access.

A vector is loaded or declared before the loop over its elements, which use it as ``x_v[v]``, and stored after it."""

from __future__ import annotations

from kernellab.lowering.c_family.index import Index
from kernellab.lowering.c_family.nests import Fetch
from kernellab.lowering.c_family.scalar import place
from kernellab.lowering.c_family.types import VALUE_TYPE, literal
from kernellab.lowering.cuda_c.access import Access, access
from kernellab.lowering.cuda_c.elements import ElementLoop, Line
from kernellab.sketch.program.program import DType, Region, Tensor, Tile


class Vectors:
    """The vectors of one pass of a loop: loaded or declared ``before`` its elements, stored ``after`` them."""

    def __init__(self, loop: ElementLoop) -> None:
        self._loop = loop
        self.before: list[Line] = []
        self.after: list[Line] = []
        self._loaded: dict[tuple[Region, float, Index], str] = {}
        #: by the tile in shared memory that they are stored to
        self._of_tiles: dict[str, str] = {}

    def load(self, fetch: Fetch, index: Index, sketch_line: int) -> str:
        """Return the name of the vector of ``fetch`` at ``index``."""
        region = fetch.region
        key = (region, fetch.pad, index)
        if key not in self._loaded:
            name = self._loaded[key] = self._loop.context.fresh(f"{region.tensor.name}_v")
            site = access(region, self._loop.at_first(index), self._loop.ints)
            dtype = region.tensor.dtype
            inside = f", {' && '.join(site.checks)}, {literal(fetch.pad, dtype)}" if site.checks else ""
            source = f"&{tensor_element(region.tensor, site, self._loop)}{inside}"
            text = f"const auto {name} = kl::load<{VALUE_TYPE[dtype]}, {self._loop.layout.name}::WIDE>({source});"
            self.before.append(Line(text, sketch_line))
        return self._loaded[key]

    def store_to_tile(self, tile: Tile, index: Index) -> str:
        """Return the name of the vector that is stored to a tile in shared memory at ``index``, its place in the
        group."""
        if tile.uid not in self._of_tiles:
            name = self._loop.context.name(tile)
            place_text = place(name, self._loop.at_first(index), tile.shape, self._loop.ints)
            self._of_tiles[tile.uid] = self._declare(f"{name}_v", tile.dtype)
            self.after.append(Line(f"kl::store(&{place_text}, {self._of_tiles[tile.uid]});"))
        return self._of_tiles[tile.uid]

    def of_tile(self, tile: Tile) -> str | None:
        """Return the name of the vector that is stored to ``tile``; None if this pass has not written the tile."""
        return self._of_tiles.get(tile.uid)

    def store_to_tensor(self, region: Region, index: Index, sketch_line: int) -> str:
        """Return the name of a new vector that is stored to ``region`` at ``index``."""
        vector = self._declare(f"{region.tensor.name}_v", region.tensor.dtype)
        site = access(region, self._loop.at_first(index), self._loop.ints)
        check = f"if ({' && '.join(site.checks)}) " if site.checks else ""
        target = tensor_element(region.tensor, site, self._loop)
        self.after.append(Line(f"{check}kl::store(&{target}, {vector});", sketch_line))
        return vector

    def _declare(self, name: str, dtype: DType) -> str:
        vector = self._loop.context.fresh(name)
        self.before.append(Line(f"kl::Vec<{VALUE_TYPE[dtype]}, {self._loop.layout.name}::WIDE> {vector};"))
        return vector


def tensor_element(tensor: Tensor, site: Access, loop: ElementLoop) -> str:
    """Return the element of ``tensor`` at an address."""
    return f"{loop.ints.tensor(tensor)}[{site.address}]"


__all__ = ["Vectors", "tensor_element"]
