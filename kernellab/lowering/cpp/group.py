"""A fused group as a C++ loop nest: one body for elements inside every tensor, another for elements past an edge."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from kernellab.lowering.c_family.fuse import Group, Place
from kernellab.lowering.c_family.gather import scatter_text
from kernellab.lowering.c_family.index import ZERO, Index, align, in_range, in_tile, leaves, plus, start_of, step_into
from kernellab.lowering.c_family.ints import Ints, Spelled, Sum
from kernellab.lowering.c_family.nests import Fetch, Nest, NestKind
from kernellab.lowering.c_family.scalar import Scalars, place
from kernellab.lowering.c_family.types import MEMORY_TYPE, VALUE_TYPE, converted, is_narrow, literal, strip
from kernellab.lowering.c_family.writer import Writer
from kernellab.lowering.cpp.halves import Strips
from kernellab.lowering.cpp.neutral import leaves_tile_alone, neutral_at_pad, substitute
from kernellab.lowering.cpp.reduce import Reduction
from kernellab.lowering.cpp.site import Site, Span, between
from kernellab.sketch.program.ints import IntExpr
from kernellab.sketch.program.program import Apply, DType, Point, Range, Read, Region, Tile, Value

#: nests in which two elements may write one place
_MEETING = frozenset((NestKind.ATOMIC, NestKind.SCATTER))


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
        self._edge = False
        self._spans: dict[int, list[Span]] = {}
        self._uniform = True
        self._commented: set[int] = set()
        self._defined: set[str] = set()
        #: names in the body of values of the current element
        self._made: set[str] = set()
        #: the value of a fold, which the body returns after its last line
        self._result = ""
        self._hoisted: dict[tuple[int, str, str], Span] = {}
        self._sites: dict[tuple[int, Index], Site] = {}
        self._strips = Strips(ints, writer, fresh, self._site, streamed)

    # -- the loops -----------------------------------------------------------------------------------------------------

    def emit(self) -> None:
        """Write the group's loops and bodies."""
        self._collect_sites()
        reductions = [Reduction(n, self) for n in self.group.nests if n.kind is NestKind.REDUCE]
        if not self.dims:
            for reduction in reductions:
                reduction.before_loops()
            self._body(reductions)
            for reduction in reductions:
                reduction.after_loops()
            return
        edge = bool(self._spans) and not self._edges_idle()
        ranges = self._fast_ranges()
        for reduction in reductions:
            reduction.before_loops()
        self._loop(0, ranges, edge, [], reductions)
        for reduction in reductions:
            reduction.after_loops()

    def _loop(self, at: int, ranges: dict[int, Span], edge: bool, inside: list[str], reds: list[Reduction]) -> None:
        dim = self.dims[at]
        var, extent = self.group.vars[dim], self.ints.cpp(self.group.domain[dim])
        innermost = at == len(self.dims) - 1
        low, high = ranges.get(dim, (ZERO, extent))
        for reduction in reds:
            reduction.before_loop(dim)
        if innermost:
            self._inner_loops(var, extent, (low, high), edge, inside, reds)
        else:
            if not edge:
                head = f"for (int64_t {var} = {low}; {var} < {high}; ++{var})"
                more = inside
            else:
                head = f"for (int64_t {var} = 0; {var} < {extent}; ++{var})"
                more = [*inside, *(between(var, (low, high)) if dim in ranges else [])]
            with self.w.block(head):
                self._loop(at + 1, ranges, edge, more, reds)
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
        with self._strips.over(rows, var, (low, high)) as span:
            self._fast_loop(var, span, reds)
        if not edge:
            return
        self._edge = True
        for first, last in ((ZERO, low), (high, extent)):
            if first != last:
                with self.w.block(f"for (int64_t {var} = {first}; {var} < {last}; ++{var})"):
                    self._body(reds)
        self._edge = False

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
        if len(reds) != 1 or any(n.kind in _MEETING for n in self.group.nests):
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
        if kinds & _MEETING or any(not r.vectorises for r in reds):
            return
        clauses = "".join(f" reduction({r.clause})" for r in reds if r.clause)
        self.w(f"#pragma omp simd{clauses}")

    # -- the body ------------------------------------------------------------------------------------------------------

    def _body(self, reds: list[Reduction]) -> None:
        waiting = iter(reds)
        self._result = ""
        self._defined.clear()
        self._made.clear()
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
        home = self.places[tile.uid]
        if home is Place.ARRAY:
            return place(name, align(self.group.vars, tile.shape, self.ints), tile.shape, self.ints)
        if home is Place.VARIABLE:
            return f"{self.declare(tile)}{name}"
        if tile.uid in self._defined:
            return name
        self._defined.add(tile.uid)
        self._made.add(name)
        writes = sum(n.tile is not None and n.tile.uid == tile.uid for n in self.group.nests)
        return f"{'const ' if writes == 1 else ''}{VALUE_TYPE[tile.dtype]} {name}"

    def _store(self, nest: Nest, region: Region) -> Iterator[str]:
        site = self._site(region, self.group.vars)
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
        alone = self.group.innermost in address_names.indexing or not self._made.isdisjoint(address_names.names)
        return f"kl::lone({tensor}, {address})" if alone else f"{tensor}[{address}]"

    def _fetch(self, fetch: Fetch, index: Index) -> str:
        site = self._site(fetch.region, index)
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
        if self._uniform:
            return None
        spans = [c for d, span in sorted(site.spans.items()) for c in between(self.group.vars[d], span)]
        return [*spans, *site.checks]

    # -- edges ---------------------------------------------------------------------------------------------------------

    def _collect_sites(self) -> None:
        sites = []
        for nest in self.group.nests:
            index = align(self.group.vars, nest.value.type.shape, self.ints)
            sites += [
                self._site(f.region, at) for f, at in leaves(nest.value, index, self.ints) if isinstance(f, Fetch)
            ]
            if nest.region is not None:
                sites.append(self._site(nest.region, self.group.vars))
        for site in sites:
            for dim, span in site.spans.items():
                spans = self._spans.setdefault(dim, [])
                if span not in spans:
                    spans.append(span)
        signatures = {tuple(sorted(s.spans.items())) for s in sites}
        self._uniform = len(signatures) <= 1

    def _site(self, region: Region, index: Index) -> Site:
        key = (id(region), index)
        if key not in self._sites:
            self._sites[key] = self._make_site(region, index)
        return self._sites[key]

    def _make_site(self, region: Region, index: Index) -> Site:
        ints = self.ints
        site = Site(region)
        guards: list[str] = []
        positions = iter(index)
        for item, size in zip(region.index, region.tensor.shape, strict=True):
            if isinstance(item, Point):
                text, start, counted = ints.cpp(item.at), ZERO, Sum(frozenset())
                if not (ints.nonnegative(item.at) and ints.below(item.at, size)):
                    guards.append(f"kl::within({text}, {ints.cpp(size)})")
            else:
                at = next(positions)
                text, start = in_range(item, at, ints), start_of(item, ints)
                counted = ints.parts(at) if ints.is_one(item.step) and at != ZERO else Sum(ints.parts(at).names)
                if not ints.fits(item.start, item.extent, item.step, size):
                    self._keep_inside(site, guards, item, at, text, size)
            base = step_into(site.address, size, plus(start, counted.base or ZERO), ints)
            site.extend(step_into(site.address, size, text, ints), base, counted)
        self._add_guards(site, guards)
        return site

    def _keep_inside(self, site: Site, guards: list[str], item: Range, at: str, text: str, size: IntExpr) -> None:
        """Note what keeps the position ``text``, that of the element of ``item`` at ``at``, below ``size``: a span of
        its loop, a guard before all loops where it has none, or a check of each element."""
        if at in self.group.vars and at != ZERO:
            dim = self.group.vars.index(at)
            site.spans[dim] = self._span(dim, item.start, item.extent, item.step, size)
        else:
            (guards if at == ZERO else site.checks).append(f"kl::within({text}, {self.ints.cpp(size)})")

    def _add_guards(self, site: Site, guards: list[str]) -> None:
        if not guards:
            return
        if not self.dims:
            site.checks[:0] = guards
            return
        name = self.fresh(f"{site.region.tensor.name.lower()}_in")
        self.w(f"const bool {name} = {' && '.join(guards)};")
        if not site.spans:
            dim = self.dims[0]
            site.spans[dim] = (ZERO, self.ints.cpp(self.group.domain[dim]))
        dim, (low, high) = next(iter(site.spans.items()))
        end = self.fresh(f"{site.region.tensor.name.lower()}_end")
        self.w(f"const int64_t {end} = {name} ? {high} : {low};")
        site.spans[dim] = (low, end)

    def _span(self, dim: int, start: IntExpr, extent: IntExpr, step: IntExpr, size: IntExpr) -> Span:
        ints = self.ints
        begin, count, stride, limit = (ints.cpp(e) for e in (start, extent, step, size))
        tail = "" if ints.is_one(step) else f", {stride}"
        high_text = f"kl::inside({limit}, {begin}, {count}{tail})"
        low_text = ZERO if ints.nonnegative(start) else f"kl::before({begin}, {count}{tail})"
        key = (dim, low_text, high_text)
        if key not in self._hoisted:
            var = self.group.vars[dim]
            high = self.fresh(f"{var}_end")
            self.w(f"const int64_t {high} = {high_text};")
            low = ZERO
            if low_text != ZERO:
                low = self.fresh(f"{var}_begin")
                self.w(f"const int64_t {low} = kl::imin({low_text}, {high});")
            self._hoisted[key] = (low, high)
        return self._hoisted[key]

    def _fast_ranges(self) -> dict[int, Span]:
        result = {}
        for dim, spans in self._spans.items():
            lows = list(dict.fromkeys(s[0] for s in spans if s[0] != ZERO)) or [ZERO]
            highs = list(dict.fromkeys(s[1] for s in spans))
            low, high = lows[0], highs[0]
            for text in lows[1:]:
                low = f"kl::imax({low}, {text})"
            for text in highs[1:]:
                high = f"kl::imin({high}, {text})"
            held = low != ZERO and len(spans) > 1
            high = f"kl::imax({low}, {high})" if held else high
            low = self._named(low, dim, "begin") if len(lows) > 1 else low
            high = self._named(high, dim, "end") if held or len(highs) > 1 else high
            result[dim] = (low, high)
        return result

    def _named(self, text: str, dim: int, word: str) -> str:
        name = self.fresh(f"{self.group.vars[dim]}_all_{word}")
        self.w(f"const int64_t {name} = {text};")
        return name

    def _edges_idle(self) -> bool:
        """Has the body no effect past the edges? Then the loops stop there."""
        for nest in self.group.nests:
            if nest.kind in (NestKind.STORE, NestKind.ATOMIC):
                assert nest.region is not None
                spans = self._site(nest.region, self.group.vars).spans
                if any(len(of_dim) > 1 or spans.get(dim) != of_dim[0] for dim, of_dim in self._spans.items()):
                    return False
            elif nest.kind is NestKind.SCATTER:
                # past the end of one tensor that it reads there may be elements of another one to store
                return False
            elif nest.kind is NestKind.REDUCE:
                if not (self._uniform and neutral_at_pad(nest.op, self._inlined(nest.value))):
                    return False
            elif nest.tile is not None and self.places[nest.tile.uid] is Place.ARRAY:
                if not (self._uniform and leaves_tile_alone(nest.tile, self._inlined(nest.value))):
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
