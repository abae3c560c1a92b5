"""A fused group as a loop of each thread over its elements: vectors in, one element at a time, vectors out."""

from __future__ import annotations

from dataclasses import replace

from kernellab.lowering.c_family.fuse import Group
from kernellab.lowering.c_family.gather import scatter_text
from kernellab.lowering.c_family.index import ZERO, Index, align
from kernellab.lowering.c_family.nests import Fetch, Nest, NestKind, subvalues
from kernellab.lowering.c_family.scalar import Scalars
from kernellab.lowering.c_family.types import MEMORY_TYPE, VALUE_TYPE, converted, is_narrow, literal, strip
from kernellab.lowering.c_family.writer import Writer
from kernellab.lowering.cuda_c.access import access
from kernellab.lowering.cuda_c.elements import Context, ElementLoop, Line
from kernellab.lowering.cuda_c.placement import MemorySpace
from kernellab.lowering.cuda_c.reduce import Fold
from kernellab.lowering.cuda_c.tile_elements import TileElements
from kernellab.lowering.cuda_c.vectors import Vectors, tensor_element
from kernellab.sketch.program.program import Apply, Const, DType, Region, Tile


class GroupWriter:
    """Writes one group."""

    def __init__(self, group: Group, context: Context, writer: Writer) -> None:
        self.group, self.context, self.writer = group, context, writer
        self.ints = context.ints
        self.loop = ElementLoop(group, context)
        self.vectors = Vectors(self.loop)
        self.tiles = TileElements(group, context, self.vectors)
        self.scalars = Scalars(self.ints, self.tiles.read, self._fetch, context.params, "cuda_c")
        stored = {n.region.tensor.name for n in group.nests if n.region is not None}
        stored |= {n.scatter.tensor.name for n in group.nests if n.scatter is not None}
        fetched = {f.region.tensor.name for n in group.nests for f in subvalues(n.value) if isinstance(f, Fetch)}
        #: tensors that are both read and written here: accessed one element after another
        self._read_and_written = frozenset(stored & fetched)

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
        nests = self.group.nests
        spaces = {self.tiles.space(n.tile) if n.tile is not None else None for n in nests}
        if spaces != {MemorySpace.REGISTERS} or not all(isinstance(n.value, Const) for n in nests):
            return False
        for nest in nests:
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
        return [self.tiles.write(nest.tile, self._point(nest, nest.tile))]

    def _point(self, nest: Nest, tile: Tile) -> str:
        """Return the element of ``tile`` that ``nest`` writes: its value, or a reduction's over dimensions of 1."""
        if nest.kind is NestKind.REDUCE and nest.op in ("argmax", "argmin"):
            return ZERO
        text = self._value(nest)
        if nest.kind is NestKind.REDUCE and nest.op == "reduce_any":
            text = f"({text} != 0)"
        return strip(converted(text, nest.value.type.dtype, tile.dtype))

    def _is_wide(self, region: Region, index: Index) -> bool:
        is_free = bool(self.group.dims) and region.tensor.name not in self._read_and_written
        return is_free and self.loop.is_wide(region, index)

    def _store(self, nest: Nest, region: Region, text: str) -> list[str]:
        tensor, index, atomic = region.tensor, self.group.vars, nest.kind is NestKind.ATOMIC
        text = strip(converted(text, nest.value.type.dtype, tensor.dtype.compute))
        if not atomic and self._is_wide(region, index):
            return [f"{self.vectors.store_to_tensor(region, index, nest.line)}[v] = {text};"]
        site = access(region, index, self.ints)
        checks = list(site.checks) if self.group.dims else ["threadIdx.x == 0", *site.checks]
        target, value = tensor_element(tensor, site, self.loop), f"{MEMORY_TYPE[tensor.dtype]}({text})"
        line = f"kl::atomic_add(&{target}, {value});" if atomic else f"{target} = {value};"
        return [f"if ({' && '.join(checks)}) {line}" if checks else line]

    # -- leaves --------------------------------------------------------------------------------------------------------

    def _fetch(self, fetch: Fetch, index: Index) -> str:
        region, dtype = fetch.region, fetch.region.tensor.dtype
        if self._is_wide(region, index):
            return f"{self.vectors.load(fetch, index, self._line_of(fetch))}[v]"
        site = access(region, index, self.ints)
        text = tensor_element(region.tensor, site, self.loop)
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
