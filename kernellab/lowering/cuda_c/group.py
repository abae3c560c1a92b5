"""A fused group as a loop of each thread over its elements: vectors in, one element at a time, vectors out."""

from __future__ import annotations

from dataclasses import replace

from kernellab.lowering.c_family.fuse import Group
from kernellab.lowering.c_family.gather import scatter_text
from kernellab.lowering.c_family.index import ZERO, Index, align
from kernellab.lowering.c_family.nests import Fetch, Nest, NestKind, subvalues
from kernellab.lowering.c_family.scalar import Scalars, place
from kernellab.lowering.c_family.types import MEMORY_TYPE, VALUE_TYPE, converted, is_narrow, literal, strip
from kernellab.lowering.c_family.writer import Writer
from kernellab.lowering.cuda_c.access import Access, access
from kernellab.lowering.cuda_c.elements import Context, ElementLoop, Line
from kernellab.lowering.cuda_c.placement import MemorySpace
from kernellab.lowering.cuda_c.reduce import Fold
from kernellab.sketch.program.program import Apply, Const, DType, Read, Region, Tensor, Tile


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
            source = f"&{_element(region.tensor, site, self._loop)}{inside}"
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
        target = _element(region.tensor, site, self._loop)
        self.after.append(Line(f"{check}kl::store(&{target}, {vector});", sketch_line))
        return vector

    def _declare(self, name: str, dtype: DType) -> str:
        vector = self._loop.context.fresh(name)
        self.before.append(Line(f"kl::Vec<{VALUE_TYPE[dtype]}, {self._loop.layout.name}::WIDE> {vector};"))
        return vector


def _element(tensor: Tensor, site: Access, loop: ElementLoop) -> str:
    return f"{loop.ints.tensor(tensor)}[{site.address}]"


class GroupWriter:
    """Writes one group."""

    def __init__(self, group: Group, context: Context, writer: Writer) -> None:
        self.group, self.context, self.writer = group, context, writer
        self.ints = context.ints
        self.loop = ElementLoop(group, context)
        self.vectors = Vectors(self.loop)
        self.scalars = Scalars(self.ints, self._read, self._fetch, context.params, "cuda_c")
        #: tiles in the loop's variables that are declared
        self._declared: set[str] = set()
        stored = {n.region.tensor.name for n in group.nests if n.region is not None}
        stored |= {n.scatter.tensor.name for n in group.nests if n.scatter is not None}
        fetched = {f.region.tensor.name for n in group.nests for f in subvalues(n.value) if isinstance(f, Fetch)}
        #: tensors that are both read and written here: accessed one element after another
        self._in_order = frozenset(stored & fetched)

    def emit(self) -> None:
        """Write the group's loop."""
        if not self.group.dims:
            for nest in self.group.nests:
                for text in self._statements(nest, None):
                    self.writer(text, nest.line)
            return
        layout = self.loop.layout
        if self._fill():
            return
        folds = {
            id(n): Fold(n, self.group, layout, self.context) for n in self.group.nests if n.kind is NestKind.REDUCE
        }
        with self.ints.watch() as used:
            each = [Line(s, n.line) for n in self.group.nests for s in self._statements(n, folds.get(id(n)))]
        for fold in folds.values():
            fold.before(self.writer)
        self.loop.write(self.writer, used.names, self.vectors.before, each, self.vectors.after)
        for fold in folds.values():
            fold.after(self.writer)

    def _fill(self) -> bool:
        """Set all registers to one number, which needs no positions."""
        spaces = [self.context.spaces[n.tile.uid] if n.tile is not None else None for n in self.group.nests]
        if any(not isinstance(n.value, Const) for n in self.group.nests) or set(spaces) != {MemorySpace.REGISTERS}:
            return False
        for nest in self.group.nests:
            assert nest.tile is not None
            self.writer(f"for (auto& own : {self.context.name(nest.tile)}) own = {self._value(nest)};", nest.line)
        return True

    # -- statements ----------------------------------------------------------------------------------------------------

    def _value(self, nest: Nest) -> str:
        return self.scalars.element(nest.value, align(self.group.vars, nest.value.type.shape, self.ints))

    def _statements(self, nest: Nest, fold: Fold | None) -> list[str]:
        """Return the statements of ``nest`` for one element; ``fold`` takes the elements of a reduction."""
        if nest.scatter is not None:
            line = scatter_text(nest, self.group.vars, self.scalars)
            return [line] if self.group.dims else [f"if (threadIdx.x == 0) {{ {line} }}"]
        region = nest.region
        if region is not None:
            nest = _rounded_once(nest, region)
            return self._store(nest, region, self._value(nest))
        if nest.kind is NestKind.REDUCE and fold is not None:
            return fold.update(self._value(nest))
        assert nest.tile is not None
        return [self._write(nest.tile, self._point(nest, nest.tile))]

    def _point(self, nest: Nest, tile: Tile) -> str:
        """Return the element of ``tile`` that ``nest`` writes: its value, or a reduction's over dimensions of 1."""
        if nest.kind is NestKind.REDUCE and nest.op in ("argmax", "argmin"):
            return ZERO
        text = self._value(nest)
        if nest.kind is NestKind.REDUCE and nest.op == "reduce_any":
            text = f"({text} != 0)"
        return strip(converted(text, nest.value.type.dtype, tile.dtype))

    def _write(self, tile: Tile, text: str) -> str:
        space, name = self.context.spaces[tile.uid], self.context.name(tile)
        if space is MemorySpace.REGISTERS:
            return f"{name}[at + v] = {text};"
        if space is MemorySpace.UNIFORM:
            return f"{self.context.declare(tile)}{name} = {text};"
        if space is MemorySpace.LOCAL:
            return f"{self._declare(tile)}{name} = {text};"
        if not self.group.dims:
            return f"if (threadIdx.x == 0) {name}[0] = {text};"
        vector = self.vectors.store_to_tile(tile, align(self.group.vars, tile.shape, self.ints))
        return f"{vector}[v] = {text};"

    def _declare(self, tile: Tile) -> str:
        """Return the type before the first write of a tile in a variable of the loop, else ""."""
        if tile.uid in self._declared:
            return ""
        self._declared.add(tile.uid)
        writes = sum(n.tile is not None and n.tile.uid == tile.uid for n in self.group.nests)
        return f"{'const ' if writes == 1 else ''}{VALUE_TYPE[tile.dtype]} "

    def _is_wide(self, region: Region, index: Index) -> bool:
        is_free = bool(self.group.dims) and region.tensor.name not in self._in_order
        return is_free and self.loop.is_wide(region, index)

    def _store(self, nest: Nest, region: Region, text: str) -> list[str]:
        tensor, index, atomic = region.tensor, self.group.vars, nest.kind is NestKind.ATOMIC
        text = strip(converted(text, nest.value.type.dtype, tensor.dtype.compute))
        if not atomic and self._is_wide(region, index):
            return [f"{self.vectors.store_to_tensor(region, index, nest.line)}[v] = {text};"]
        site = access(region, index, self.ints)
        checks = list(site.checks) if self.group.dims else ["threadIdx.x == 0", *site.checks]
        target, value = _element(tensor, site, self.loop), f"{MEMORY_TYPE[tensor.dtype]}({text})"
        line = f"kl::atomic_add(&{target}, {value});" if atomic else f"{target} = {value};"
        return [f"if ({' && '.join(checks)}) {line}" if checks else line]

    # -- leaves --------------------------------------------------------------------------------------------------------

    def _read(self, read: Read, index: Index) -> str:
        tile = read.tile
        space, name = self.context.spaces[tile.uid], self.context.name(tile)
        if space is MemorySpace.REGISTERS:
            return f"{name}[at + v]"
        if space is not MemorySpace.SHARED:
            return name
        vector = self.vectors.of_tile(tile)
        if vector is not None and index == align(self.group.vars, tile.shape, self.ints):
            return f"{vector}[v]"
        text = place(name, index, tile.shape, self.ints)
        return f"float({text})" if MEMORY_TYPE[tile.dtype] != VALUE_TYPE[tile.dtype] else text

    def _fetch(self, fetch: Fetch, index: Index) -> str:
        region, dtype = fetch.region, fetch.region.tensor.dtype
        if self._is_wide(region, index):
            return f"{self.vectors.load(fetch, index, self._line_of(fetch))}[v]"
        site = access(region, index, self.ints)
        text = _element(region.tensor, site, self.loop)
        text = f"float({text})" if MEMORY_TYPE[dtype] != VALUE_TYPE[dtype] else text
        return f"({' && '.join(site.checks)} ? {text} : {literal(fetch.pad, dtype)})" if site.checks else text

    def _line_of(self, fetch: Fetch) -> int:
        return next((n.line for n in self.group.nests if any(v is fetch for v in subvalues(n.value))), 0)


def _rounded_once(nest: Nest, region: Region) -> Nest:
    """Return the value without a cast to the narrow dtype of the tensor: the store rounds."""
    value, dtype = nest.value, region.tensor.dtype
    if nest.kind is NestKind.STORE and isinstance(value, Apply) and value.op == "cast" and value.type.dtype is dtype:
        inner = value.args[0]
        if is_narrow(dtype) and inner.type.dtype is DType.F32:
            return replace(nest, value=inner)
    return nest


__all__ = ["GroupWriter"]
