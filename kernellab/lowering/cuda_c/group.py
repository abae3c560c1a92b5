"""A fused group as a loop of each thread over its elements: vectors in, one element at a time, vectors out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

from kernellab.lowering.c_family.fuse import Group
from kernellab.lowering.c_family.gather import scatter_text
from kernellab.lowering.c_family.index import Index, align
from kernellab.lowering.c_family.ints import Ints
from kernellab.lowering.c_family.nests import Fetch, Nest, NestKind, subvalues
from kernellab.lowering.c_family.scalar import Scalars, place
from kernellab.lowering.c_family.types import MEMORY_TYPE, VALUE_TYPE, converted, is_narrow, literal, strip
from kernellab.lowering.c_family.writer import Writer
from kernellab.lowering.cuda_c.access import access, wide_when
from kernellab.lowering.cuda_c.placement import Layouts, MemorySpace
from kernellab.lowering.cuda_c.reduce import Fold
from kernellab.sketch.program.ints import IntExpr
from kernellab.sketch.program.program import Apply, Const, DType, Read, Region, Tile


@dataclass
class Wishes:
    """What vector accesses need from the host: integers that the vector width must divide, and aligned tensors."""

    numbers: dict[str, IntExpr] = field(default_factory=dict)
    tensors: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Context:
    """What the groups of a kernel share. ``name`` returns a tile's name, ``fresh`` a new name similar to its
    argument."""

    ints: Ints
    spaces: Mapping[str, MemorySpace]
    layouts: Layouts
    name: Callable[[Tile], str]
    fresh: Callable[[str], str]
    #: the type before a variable's first write, "" once it is declared
    declare: Callable[[Tile], str]
    params: Mapping[str, str]
    wishes: Wishes
    #: for each loop variable the index of a vector's first element along it
    firsts: dict[str, str] = field(default_factory=dict)


class GroupWriter:
    """Writes one group."""

    def __init__(self, group: Group, context: Context, writer: Writer) -> None:
        self.group, self.k, self.w = group, context, writer
        self.ints = context.ints
        self.scalars = Scalars(self.ints, self._read, self._fetch, context.params, "cuda_c")
        self._dims = [d for d, v in enumerate(group.vars) if v != "0"]
        self._last = group.vars[self._dims[-1]] if self._dims else "0"
        self._first = "0"
        if self._dims:
            # the loops follow each other, so all use the same name
            if self._last not in context.firsts:
                context.firsts[self._last] = context.fresh(f"{self._last}0")
            self._first = context.firsts[self._last]
        #: lines before and after the loop over a vector; vectors by their contents
        self._before: list[tuple[str, int]] = []
        self._behind: list[tuple[str, int]] = []
        self._vectors: dict[tuple[object, ...], str] = {}
        #: for tiles in shared memory that this group writes: the name of the vector that is stored there
        self._made: dict[str, str] = {}
        self._local: set[str] = set()
        stored = {n.region.tensor.name for n in group.nests if n.region is not None}
        stored |= {n.scatter.tensor.name for n in group.nests if n.scatter is not None}
        fetched = {f.region.tensor.name for n in group.nests for f in subvalues(n.value) if isinstance(f, Fetch)}
        #: both read and written here: accessed one by one, in order
        self._ordered = stored & fetched

    def emit(self) -> None:
        """Write the group's loop."""
        if not self._dims:
            for nest in self.group.nests:
                for line in self._statement(nest, None):
                    self.w(line, nest.line)
            return
        layout = self.k.layouts.of(self.group.domain)
        if self._fill():
            return
        folds = {id(n): Fold(n, self.group, layout, self.k) for n in self.group.nests if n.kind is NestKind.REDUCE}
        body: list[tuple[str, int]] = []
        with self.ints.watch() as used:
            for nest in self.group.nests:
                body += [(line, nest.line) for line in self._statement(nest, folds.get(id(nest)))]
        for fold in folds.values():
            fold.before(self.w)
        self.w("#pragma unroll")
        with self.w.block(f"for (int at = 0; at < {layout.name}::ITEMS; at += {layout.name}::WIDE)"):
            self._positions(layout.name, layout.split, used.names)
            quoted: set[int] = set()
            self._put(self._before, quoted)
            self._each(layout.name, body, quoted, used.names)
            self._put(self._behind, quoted)
        for fold in folds.values():
            fold.after(self.w)

    def _fill(self) -> bool:
        """Set all registers to one number, which needs no positions."""
        spaces = [self.k.spaces[n.tile.uid] if n.tile is not None else None for n in self.group.nests]
        if any(not isinstance(n.value, Const) for n in self.group.nests) or set(spaces) != {MemorySpace.REGISTERS}:
            return False
        for nest in self.group.nests:
            assert nest.tile is not None
            self.w(f"for (auto& own : {self.k.name(nest.tile)}) own = {self.element(nest)};", nest.line)
        return True

    def _put(self, lines: list[tuple[str, int]], quoted: set[int]) -> None:
        for text, line in lines:
            self.w(text, line, line not in quoted)
            quoted.add(line)

    def _each(self, layout: str, body: list[tuple[str, int]], quoted: set[int], used: Collection[str]) -> None:
        if not body:
            return
        self.w("#pragma unroll")
        with self.w.block(f"for (int v = 0; v < {layout}::WIDE; ++v)"):
            if self._last in used:
                self.w(f"const index_t {self._last} = {self._first} + v;")
            self._put(body, quoted)

    def _positions(self, layout: str, split: int, used: Collection[str]) -> None:
        """Write the indices of this thread's elements, and the test that ends the loop after the last one.

        ``used`` are the names in the loop's body."""
        names = [self.group.vars[d] for d in self._dims]
        extents = [self.group.domain[d] for d in self._dims]
        rows, columns = names[:split], [*names[split:-1], self._first]
        row = self._part(rows, f"{layout}::row(at)", "row")
        column = self._part(columns, f"{layout}::column(at)", "column")
        self.w(f"if (!{layout}::has({row}, {column})) continue;")
        self._unflatten(rows, extents[:split], row, used)
        self._unflatten(columns, extents[split:], column, used)

    def _part(self, names: list[str], position: str, what: str) -> str:
        if not names:
            return "0"
        name = names[0] if len(names) == 1 else self.k.fresh(what)
        self.w(f"const index_t {name} = {position};")
        return name

    def _unflatten(self, names: list[str], extents: list[IntExpr], flat: str, used: Collection[str]) -> None:
        if len(names) < 2:
            return
        wanted = [n for n, name in enumerate(names) if name in used or name == self._first]
        left = flat
        for n in range(len(names) - 1, min(wanted, default=len(names)) - 1, -1):
            if n in wanted:
                number = left if n == 0 else f"{left} % {self.ints.operand(extents[n])}"
                self.w(f"const index_t {names[n]} = {number};")
            if n > wanted[0]:
                left = f"{left} / {self.ints.operand(extents[n])}"

    # -- statements ----------------------------------------------------------------------------------------------------

    def element(self, nest: Nest) -> str:
        return self.scalars.element(nest.value, align(self.group.vars, nest.value.type.shape, self.ints))

    def _statement(self, nest: Nest, fold: Fold | None) -> list[str]:
        if nest.scatter is not None:
            line = scatter_text(nest, self.group.vars, self.scalars)
            return [line] if self._dims else [f"if (threadIdx.x == 0) {{ {line} }}"]
        if nest.region is not None:
            nest = _rounded_once(nest, nest.region)
        if nest.kind is NestKind.REDUCE and fold is None and nest.op in ("argmax", "argmin"):
            assert nest.tile is not None
            return [self._write(nest.tile, "0")]
        text = self.element(nest)
        if nest.kind is NestKind.REDUCE:
            if fold is not None:
                return fold.update(text)
            return self._fold_of_one(nest, text)
        if nest.kind is NestKind.POINT:
            assert nest.tile is not None
            return [self._write(nest.tile, strip(converted(text, nest.value.type.dtype, nest.tile.dtype)))]
        assert nest.region is not None
        return self._store(nest, nest.region, text)

    def _fold_of_one(self, nest: Nest, text: str) -> list[str]:
        """A reduction over dimensions of 1."""
        tile = nest.tile
        assert tile is not None
        source = nest.value.type.dtype
        text = f"({text} != 0)" if nest.op == "reduce_any" else text
        return [self._write(tile, strip(converted(text, source, tile.dtype)))]

    def _write(self, tile: Tile, text: str) -> str:
        space, name = self.k.spaces[tile.uid], self.k.name(tile)
        if space is MemorySpace.REGISTERS:
            return f"{name}[at + v] = {text};"
        if space is MemorySpace.UNIFORM:
            return f"{self.k.declare(tile)}{name} = {text};"
        if space is MemorySpace.LOCAL:
            fresh = tile.uid not in self._local
            self._local.add(tile.uid)
            writes = sum(n.tile is not None and n.tile.uid == tile.uid for n in self.group.nests)
            kind = f"{'const ' if writes == 1 else ''}{VALUE_TYPE[tile.dtype]} " if fresh else ""
            return f"{kind}{name} = {text};"
        if not self._dims:
            return f"if (threadIdx.x == 0) {name}[0] = {text};"
        if tile.uid not in self._made:
            vector = self.k.fresh(f"{name}_v")
            self._made[tile.uid] = vector
            layout = self.k.layouts.of(self.group.domain).name
            self._before.append((f"kl::Vec<{VALUE_TYPE[tile.dtype]}, {layout}::WIDE> {vector};", 0))
            target = place(name, self._at_first(align(self.group.vars, tile.shape, self.ints)), tile.shape, self.ints)
            self._behind.append((f"kl::store(&{target}, {vector});", 0))
        return f"{self._made[tile.uid]}[v] = {text};"

    def _at_first(self, index: Index) -> Index:
        return tuple(self._first if i == self._last else i for i in index)

    def _is_wide(self, region: Region, index: Index, *, atomic: bool = False) -> bool:
        if atomic or region.tensor.name in self._ordered:
            return False
        wanted = wide_when(region, index, self._last, self.ints)
        if wanted is None:
            return False
        for expr in wanted:
            if self.ints.const(expr) == 0:
                continue
            self.k.wishes.numbers.setdefault(str(expr), expr)
        self.k.wishes.tensors[region.tensor.name] = region.tensor.dtype.bytes
        return True

    def _store(self, nest: Nest, region: Region, text: str) -> list[str]:
        tensor, index, atomic = region.tensor, self.group.vars, nest.kind is NestKind.ATOMIC
        kind = VALUE_TYPE[tensor.dtype]
        text = strip(converted(text, nest.value.type.dtype, tensor.dtype.compute))
        if self._dims and self._is_wide(region, index, atomic=atomic):
            layout = self.k.layouts.of(self.group.domain).name
            vector = self.k.fresh(f"{tensor.name}_v")
            site = access(region, self._at_first(index), self.ints)
            self._before.append((f"kl::Vec<{kind}, {layout}::WIDE> {vector};", 0))
            check = f"if ({' && '.join(site.checks)}) " if site.checks else ""
            target = f"{self.ints.tensor(tensor)}[{site.address}]"
            self._behind.append((f"{check}kl::store(&{target}, {vector});", nest.line))
            return [f"{vector}[v] = {text};"]
        site = access(region, index, self.ints)
        checks = list(site.checks) if self._dims else ["threadIdx.x == 0", *site.checks]
        target = f"{self.ints.tensor(tensor)}[{site.address}]"
        line = f"{target} = {MEMORY_TYPE[tensor.dtype]}({text});"
        if atomic:
            line = f"kl::atomic_add(&{target}, {MEMORY_TYPE[tensor.dtype]}({text}));"
        return [f"if ({' && '.join(checks)}) {line}" if checks else line]

    # -- leaves --------------------------------------------------------------------------------------------------------

    def _read(self, read: Read, index: Index) -> str:
        tile = read.tile
        space, name = self.k.spaces[tile.uid], self.k.name(tile)
        if space is MemorySpace.REGISTERS:
            return f"{name}[at + v]"
        if space is not MemorySpace.SHARED:
            return name
        if tile.uid in self._made and index == align(self.group.vars, tile.shape, self.ints):
            return f"{self._made[tile.uid]}[v]"
        text = place(name, index, tile.shape, self.ints)
        return f"float({text})" if MEMORY_TYPE[tile.dtype] != VALUE_TYPE[tile.dtype] else text

    def _fetch(self, fetch: Fetch, index: Index) -> str:
        region = fetch.region
        tensor = region.tensor
        kind, pad = VALUE_TYPE[tensor.dtype], literal(fetch.pad, tensor.dtype)
        if self._dims and self._is_wide(region, index):
            key = (region, fetch.pad, index)
            if key not in self._vectors:
                layout = self.k.layouts.of(self.group.domain).name
                name = self._vectors[key] = self.k.fresh(f"{tensor.name}_v")
                site = access(region, self._at_first(index), self.ints)
                inside = f", {' && '.join(site.checks)}, {pad}" if site.checks else ""
                arguments = f"&{self.ints.tensor(tensor)}[{site.address}]{inside}"
                line = f"const auto {name} = kl::load<{kind}, {layout}::WIDE>({arguments});"
                self._before.append((line, self._line_of(fetch)))
            return f"{self._vectors[key]}[v]"
        site = access(region, index, self.ints)
        text = f"{self.ints.tensor(tensor)}[{site.address}]"
        text = f"float({text})" if MEMORY_TYPE[tensor.dtype] != kind else text
        return f"({' && '.join(site.checks)} ? {text} : {pad})" if site.checks else text

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


__all__ = ["Context", "GroupWriter", "Wishes"]
