"""A fused group as a C++ loop nest: one body for elements inside every tensor, another for elements past an edge."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from kernellab.lowering.c_family.fuse import Group, Place
from kernellab.lowering.c_family.gather import scatter_text
from kernellab.lowering.c_family.index import ZERO, Index, align, in_tile
from kernellab.lowering.c_family.ints import Ints, Spelled
from kernellab.lowering.c_family.nests import Fetch, Nest, NestKind
from kernellab.lowering.c_family.scalar import Scalars, place
from kernellab.lowering.c_family.types import MEMORY_TYPE, VALUE_TYPE, converted, is_narrow, literal, strip
from kernellab.lowering.c_family.writer import Writer
from kernellab.lowering.cpp.halves import Strips
from kernellab.lowering.cpp.neutral import leaves_tile_alone, neutral_at_pad, substitute
from kernellab.lowering.cpp.reduce import Reduction
from kernellab.lowering.cpp.site import Site, Sites, Span, between
from kernellab.sketch.program.program import Apply, DType, Read, Region, Tile, Value

#: nests in which two elements may write one place
_CONFLICTING = frozenset((NestKind.ATOMIC, NestKind.SCATTER))


class GroupEmitter:
    """Writes one group. ``names`` returns a tile's C++ name, ``fresh`` a new name similar to its argument; tensors in
    ``streamed`` are written past the caches."""

    def __init__(
        self,
        group: Group,
        ints: Ints,
        writer: Writer,
        places: dict[str, Place],
        names: Callable[[Tile], str],
        fresh: Callable[[str], str],
        params: dict[str, str],
        declare: Callable[[Tile], str],
        streamed: frozenset[str] = frozenset(),
    ) -> None:
        self.group, self.ints, self.w = group, ints, writer
        self.places, self.names, self.fresh = places, names, fresh
        self.declare = declare
        self.scalars = Scalars(ints, self._read, self._fetch, params, "cpp", self._pick)
        self.dims = group.dims
        #: the body being written is that of elements past an edge
        self._edge = False
        #: ids of the nests whose sketch line is quoted
        self._commented: set[int] = set()
        #: in the body: uids of tiles that are declared, and the names of those that change with the element
        self._defined: set[str] = set()
        self._element_names: set[str] = set()
        #: the value of a fold, which the body returns after its last line
        self._result = ""
        self.sites = Sites(group, ints, writer, fresh)
        self._strips = Strips(ints, writer, fresh, self.sites.site, streamed)

    # -- the loops -----------------------------------------------------------------------------------------------------

    def emit(self) -> None:
        """Write the group's loops and bodies."""
        reductions = [Reduction(n, self) for n in self.group.nests if n.kind is NestKind.REDUCE]
        if not self.dims:
            for reduction in reductions:
                reduction.before_loops()
            self._body(reductions)
            for reduction in reductions:
                reduction.after_loops()
            return
        edge = bool(self.sites.spans) and not self._edges_idle()
        ranges = self.sites.fast_ranges()
        for reduction in reductions:
            reduction.before_loops()
        self._loop(0, ranges, edge, [], reductions)
        for reduction in reductions:
            reduction.after_loops()

    def _loop(self, at: int, ranges: dict[int, Span], edge: bool, inside: list[str], reds: list[Reduction]) -> None:
        """Write the loop over dimension ``at`` and those inside it.

        ``ranges``: where elements are inside their tensors; ``edge``: the other elements have an effect, too;
        ``inside``: conditions under which the outer loops' variables are in their ranges."""
        dim = self.dims[at]
        var, extent = self.group.vars[dim], self.ints.cpp(self.group.domain[dim])
        innermost = at == len(self.dims) - 1
        fast = ranges.get(dim, Span(ZERO, extent))
        for reduction in reds:
            reduction.before_loop(dim)
        if innermost:
            self._inner_loops(var, extent, fast, edge, inside, reds)
        elif edge:
            checked = [*inside, *(between(var, fast) if dim in ranges else [])]
            with self.w.block(f"for (int64_t {var} = 0; {var} < {extent}; ++{var})"):
                self._loop(at + 1, ranges, edge, checked, reds)
        else:
            with self.w.block(f"for (int64_t {var} = {fast.low}; {var} < {fast.high}; ++{var})"):
                self._loop(at + 1, ranges, edge, inside, reds)
        for reduction in reds:
            reduction.after_loop(dim)

    def _inner_loops(
        self, var: str, extent: str, fast: Span, edge: bool, inside: list[str], reds: list[Reduction]
    ) -> None:
        low, high = fast
        if edge and inside:
            end = self.fresh(f"{var}_end")
            self.w(f"const int64_t {end} = {' && '.join(inside)} ? {high} : {low};")
            high = end
        dim = self.dims[-1]
        rows = self._strips.rows(self.group.nests, self.group.vars, var, self.group.domain[dim])
        with self._strips.over(rows, var, Span(low, high)) as span:
            self._fast_loop(var, span, reds)
        if not edge:
            return
        for first, last in ((ZERO, low), (high, extent)):
            if first != last:
                with self.w.block(f"for (int64_t {var} = {first}; {var} < {last}; ++{var})"):
                    self._body(reds, edge=True)

    def _fast_loop(self, var: str, span: Span, reds: list[Reduction]) -> None:
        low, high = span
        folded = self._foldable(reds)
        if folded is not None and folded.is_arg:
            self._body_of(folded, folded.search(var, low, high), reds)
        elif folded is not None:
            head = f"{folded.scalar} = kl::fold<{folded.word}>({folded.scalar}, {low}, {high}, [&](int64_t {var})"
            self._body_of(folded, head, reds)
        else:
            self._simd(reds)
            head = f"for (int64_t {var} = {low}; {var} < {high}; ++{var})"
            with self.w.block(head, self.group.nests[-1].line, comment=False):
                self._body(reds)

    def _body_of(self, folded: Reduction, head: str, reds: list[Reduction]) -> None:
        folded.returns = True
        with self.w.block(head, folded.nest.line, comment=False, tail="});"):
            self._body(reds)
        folded.returns = False

    def _foldable(self, reds: list[Reduction]) -> Reduction | None:
        """Return the only reduction, if a scalar accumulates it across the innermost loop and the body does nothing
        else."""
        if len(reds) != 1 or any(n.kind in _CONFLICTING for n in self.group.nests):
            return None
        if not reds[0].clause and not (reds[0].searches and self._pure()):
            return None
        return None if reds[0].is_arg and self.group.nests[-1] is not reds[0].nest else reds[0]

    def _pure(self) -> bool:
        """Has the body no side effects, so that an element may be computed twice?"""
        return all(
            n.kind is NestKind.REDUCE or (n.tile is not None and self.places[n.tile.uid] is Place.LOCAL)
            for n in self.group.nests
        )

    def _simd(self, reds: list[Reduction]) -> None:
        kinds = {n.kind for n in self.group.nests}
        if kinds & _CONFLICTING or any(not r.vectorises for r in reds):
            return
        clauses = "".join(f" reduction({r.clause})" for r in reds if r.clause)
        self.w(f"#pragma omp simd{clauses}")

    # -- the body ------------------------------------------------------------------------------------------------------

    def _body(self, reds: list[Reduction], *, edge: bool = False) -> None:
        """Write the statements of one element; ``edge``: it may lie past the edge of a tensor."""
        self._edge = edge
        waiting = iter(reds)
        self._result = ""
        self._defined.clear()
        self._element_names.clear()
        for nest in self.group.nests:
            comment = id(nest) not in self._commented and not self._edge
            self._commented.add(id(nest))
            for line in self._statement(nest, waiting):
                self.w(line, nest.line, comment)
        if self._result:
            self.w(f"return {self._result};")

    def _statement(self, nest: Nest, reds: Iterator[Reduction]) -> Iterator[str]:
        if nest.kind is NestKind.REDUCE:
            reduction, element = next(reds), self.element(nest)
            if reduction.returns:
                yield self._folded(nest, reduction.value(element))
            else:
                yield from reduction.update(element)
            return
        if nest.scatter is not None:
            yield scatter_text(nest, self.group.vars, self.scalars)
            return
        if nest.kind is NestKind.POINT:
            tile = nest.tile
            assert tile is not None
            text = strip(converted(self.element(nest), nest.value.type.dtype, tile.dtype))
            yield f"{self._target(tile)} = {text};"
            return
        assert nest.region is not None
        yield from self._store(nest, nest.region)

    def _folded(self, nest: Nest, value: str) -> str:
        """Return the line that sets a fold's value; the statements after ``nest`` come before the fold's end."""
        if nest is self.group.nests[-1]:
            return f"return {value};"
        self._result = self.fresh("folded")
        return f"const auto {self._result} = {value};"

    def element(self, nest: Nest) -> str:
        """Return the value of ``nest`` at the current element, as C++."""
        return self.scalars.element(nest.value, align(self.group.vars, nest.value.type.shape, self.ints))

    def _target(self, tile: Tile) -> str:
        name = self.names(tile)
        tile_place = self.places[tile.uid]
        if tile_place is Place.ARRAY:
            return place(name, align(self.group.vars, tile.shape, self.ints), tile.shape, self.ints)
        if tile_place is Place.VARIABLE:
            return f"{self.declare(tile)}{name}"
        if tile.uid in self._defined:
            return name
        self._defined.add(tile.uid)
        self._element_names.add(name)
        writes = sum(n.tile is not None and n.tile.uid == tile.uid for n in self.group.nests)
        return f"{'const ' if writes == 1 else ''}{VALUE_TYPE[tile.dtype]} {name}"

    def _store(self, nest: Nest, region: Region) -> Iterator[str]:
        site = self.sites.site(region, self.group.vars)
        checks = self._checks_now(site)
        if checks is None:
            return
        tensor, value, dtype = region.tensor, nest.value, region.tensor.dtype.compute
        atomic = nest.kind is NestKind.ATOMIC
        if is_narrow(tensor.dtype) and not atomic:
            # the assignment rounds
            dtype = DType.F32
            while isinstance(value, Apply) and value.op == "cast" and value.type.dtype is tensor.dtype:
                value = value.args[0]
        element = self.scalars.element(value, align(self.group.vars, value.type.shape, self.ints))
        text = strip(converted(element, value.type.dtype, dtype))
        target = self._strips.element(site) or f"{self.ints.tensor(tensor)}[{site.address}]"
        memory = MEMORY_TYPE[tensor.dtype]
        if atomic and nest.conflict_free:
            line = f"{target} += {memory}({text});"
        elif atomic:
            added = text if is_narrow(tensor.dtype) else f"{memory}({text})"
            line = f"kl::atomic_add(&{target}, {added});"
        else:
            line = f"{target} = {text};"
        yield f"if ({' && '.join(checks)}) {line}" if checks else line

    def _read(self, read: Read, index: Index) -> str:
        tile = read.tile
        if self.places[tile.uid] is Place.ARRAY:
            return place(self.names(tile), in_tile(read, index, self.ints), tile.shape, self.ints)
        name = self.names(tile)
        self.ints.note([name])
        return name

    def _pick(self, tensor: str, address: str, address_names: Spelled) -> str:
        """Return the element at a computed address; one whose address changes in the innermost loop is read alone."""
        self.ints.note((), address_names.names)
        varies = self.group.innermost in address_names.indexing or not self._element_names.isdisjoint(
            address_names.names
        )
        return f"kl::lone({tensor}, {address})" if varies else f"{tensor}[{address}]"

    def _fetch(self, fetch: Fetch, index: Index) -> str:
        site = self.sites.site(fetch.region, index)
        tensor = fetch.region.tensor
        pad = literal(fetch.pad, tensor.dtype)
        checks = self._checks_now(site)
        if checks is None:
            return pad
        value = self._strips.element(site)
        if value:
            return value
        value = f"{self.ints.tensor(tensor)}[{site.address}]"
        self.ints.note(site.address_names, site.address_names)
        if is_narrow(tensor.dtype):
            value = f"float({value})"
        return f"({' && '.join(checks)} ? {value} : {pad})" if checks else value

    def _checks_now(self, site: Site) -> list[str] | None:
        """Return the checks that the current element needs; None if it is known to lie outside."""
        if not self._edge or not site.spans:
            return site.checks
        if self.sites.is_uniform:
            return None
        spans = [c for d, span in sorted(site.spans.items()) for c in between(self.group.vars[d], span)]
        return [*spans, *site.checks]

    # -- edges ---------------------------------------------------------------------------------------------------------

    def _edges_idle(self) -> bool:
        """Has the body no effect past the edges? Then the loops stop there."""
        for nest in self.group.nests:
            if nest.kind in (NestKind.STORE, NestKind.ATOMIC):
                assert nest.region is not None
                spans = self.sites.site(nest.region, self.group.vars).spans
                if any(len(of_dim) > 1 or spans.get(dim) != of_dim[0] for dim, of_dim in self.sites.spans.items()):
                    return False
            elif nest.kind is NestKind.SCATTER:
                # past the end of one tensor that it reads there may be elements of another one to store
                return False
            elif nest.kind is NestKind.REDUCE:
                if not (self.sites.is_uniform and neutral_at_pad(nest.op, self._inlined(nest.value))):
                    return False
            elif nest.tile is not None and self.places[nest.tile.uid] is Place.ARRAY:
                if not (self.sites.is_uniform and leaves_tile_alone(nest.tile, self._inlined(nest.value))):
                    return False
            elif nest.tile is not None and self.places[nest.tile.uid] is Place.VARIABLE:
                return False
        return True

    def _inlined(self, value: Value | Fetch) -> Value | Fetch:
        """Return ``value`` with the tiles that this group writes replaced by their values."""
        writes = Counter(n.tile.uid for n in self.group.nests if n.tile is not None)
        values = {
            n.tile.uid: n.value
            for n in self.group.nests
            if n.tile is not None and writes[n.tile.uid] == 1 and self.places[n.tile.uid] is Place.LOCAL
        }
        return substitute(value, values)
