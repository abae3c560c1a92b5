"""The loop of a thread over its elements of a group, in vectors of a layout's ``WIDE`` elements."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from kernellab.lowering.c_family.fuse import Group
from kernellab.lowering.c_family.index import ZERO, Index
from kernellab.lowering.c_family.ints import Ints
from kernellab.lowering.c_family.writer import Writer
from kernellab.lowering.cuda_c.access import wide_when
from kernellab.lowering.cuda_c.placement import Layout, Layouts, MemorySpace
from kernellab.sketch.program.ints import IntExpr
from kernellab.sketch.program.program import Region, Tile


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


@dataclass(frozen=True)
class Line:
    """A line of code, and the line of the sketch that it comes from (0 for none)."""

    text: str
    sketch_line: int = 0


class ElementLoop:
    """The loop of a group: it writes the positions of each vector, what precedes its elements, each element, and what
    follows them."""

    def __init__(self, group: Group, context: Context) -> None:
        self.group, self.context = group, context
        self.ints = context.ints
        #: the index of a vector's first element in the innermost dimension
        self.first = ZERO if group.innermost is None else self._first_of(group.innermost)

    def _first_of(self, variable: str) -> str:
        """Return the name for ``variable`` at a vector's first element: loops follow each other, so all use one."""
        firsts = self.context.firsts
        if variable not in firsts:
            firsts[variable] = self.context.fresh(f"{variable}0")
        return firsts[variable]

    @property
    def layout(self) -> Layout:
        return self.context.layouts.of(self.group.domain)

    def at_first(self, index: Index) -> Index:
        """Return ``index`` at a vector's first element."""
        return tuple(self.first if i == self.group.innermost else i for i in index)

    def is_wide(self, region: Region, index: Index) -> bool:
        """Return whether a vector of ``region`` at ``index`` is one access; notes what the host must grant for it."""
        divided = wide_when(region, index, self.group.innermost, self.ints)
        if divided is None:
            return False
        for expr in divided:
            if self.ints.const(expr) != 0:
                self.context.wishes.numbers.setdefault(str(expr), expr)
        self.context.wishes.tensors[region.tensor.name] = region.tensor.dtype.bytes
        return True

    def write(
        self, w: Writer, used: Collection[str], before: Iterable[Line], each: Collection[Line], after: Iterable[Line]
    ) -> None:
        """Write the loop: lines ``before`` the elements of a vector, those of ``each`` element, and lines ``after``
        them. ``used`` are the names in these lines; others are not declared."""
        layout = self.layout.name
        quoted: set[int] = set()
        w("#pragma unroll")
        with w.block(f"for (int at = 0; at < {layout}::ITEMS; at += {layout}::WIDE)"):
            self._write_positions(w, used)
            _write_lines(w, before, quoted)
            if each:
                w("#pragma unroll")
                with w.block(f"for (int v = 0; v < {layout}::WIDE; ++v)"):
                    if self.group.innermost in used:
                        w(f"const index_t {self.group.innermost} = {self.first} + v;")
                    _write_lines(w, each, quoted)
            _write_lines(w, after, quoted)

    def _write_positions(self, w: Writer, used: Collection[str]) -> None:
        """Write the indices of this thread's elements, and the test that ends the loop after the last one."""
        layout, split = self.layout.name, self.layout.split
        names = [self.group.vars[d] for d in self.group.dims]
        extents = [self.group.domain[d] for d in self.group.dims]
        rows, columns = names[:split], [*names[split:-1], self.first]
        row = self._write_position(w, rows, f"{layout}::row(at)", "row")
        column = self._write_position(w, columns, f"{layout}::column(at)", "column")
        w(f"if (!{layout}::has({row}, {column})) continue;")
        self._write_indices(w, rows, extents[:split], row, used)
        self._write_indices(w, columns, extents[split:], column, used)

    def _write_position(self, w: Writer, names: list[str], position: str, what: str) -> str:
        """Write the position in the dimensions ``names`` together, and return its name."""
        if not names:
            return ZERO
        name = names[0] if len(names) == 1 else self.context.fresh(what)
        w(f"const index_t {name} = {position};")
        return name

    def _write_indices(
        self, w: Writer, names: list[str], extents: list[IntExpr], position: str, used: Collection[str]
    ) -> None:
        """Write the index in each dimension of ``names`` that is used, from the position in all of them."""
        if len(names) < 2:
            return
        needed = [n for n, name in enumerate(names) if name in used or name == self.first]
        outer = position
        for n in range(len(names) - 1, min(needed, default=len(names)) - 1, -1):
            if n in needed:
                index = outer if n == 0 else f"{outer} % {self.ints.operand(extents[n])}"
                w(f"const index_t {names[n]} = {index};")
            if n > needed[0]:
                outer = f"{outer} / {self.ints.operand(extents[n])}"


def _write_lines(w: Writer, lines: Iterable[Line], quoted: set[int]) -> None:
    """Write the lines; a line of the sketch is quoted once."""
    for line in lines:
        w(line.text, line.sketch_line, line.sketch_line not in quoted)
        quoted.add(line.sketch_line)


__all__ = ["Context", "ElementLoop", "Line", "Wishes"]
