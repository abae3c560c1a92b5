"""Addresses of elements of regions, and the conditions under which they are inside their tensors.

``X[i - 1 + j]`` in a loop over ``j`` is inside from the first ``j`` at which ``i - 1 + j >= 0``: a :class:`Span` of the
loop, whose ends are computed once before it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from kernellab.lowering.c_family.fuse import Group
from kernellab.lowering.c_family.index import ZERO, Index, align, in_range, leaves, plus, start_of, step_into
from kernellab.lowering.c_family.ints import Ints, Sum
from kernellab.lowering.c_family.nests import Fetch
from kernellab.lowering.c_family.writer import Writer
from kernellab.sketch.program.ints import IntExpr, int_op, num
from kernellab.sketch.program.program import Point, Range, Region


class Span(NamedTuple):
    """Indices along a loop, as C++: the first one inside, and the first one past the end."""

    low: str
    high: str


@dataclass
class Site:
    """An element of a region at one index: its address, valid spans by loop dimension, and checks of single elements.

    If the last index counts elements one by one, it is ``last``, and ``base`` is the address without it."""

    region: Region
    address: str = ZERO
    last: str = ""
    base: str = ZERO
    #: the names in the address, and those in ``base``
    address_names: frozenset[str] = frozenset()
    base_names: frozenset[str] = frozenset()
    spans: dict[int, Span] = field(default_factory=dict)
    checks: list[str] = field(default_factory=list)

    def extend(self, address: str, base: str, last: Sum) -> None:
        """Take the address with one more dimension, whose position has the parts ``last``."""
        self.address, self.base, self.last = address, base, last.last
        self.base_names = self.address_names | last.base_names
        self.address_names |= last.names

    def row(self, var: str) -> str | None:
        """Return the base of a row of contiguous elements along ``var``; None if there is no such row."""
        return self.base if self.last == var and var not in self.base_names else None


def between(var: str, span: Span) -> list[str]:
    """Return the conditions under which ``var`` is in ``span``."""
    low, high = span
    return [f"{var} < {high}"] if low == ZERO else [f"{low} <= {var}", f"{var} < {high}"]


class Sites:
    """The sites of one group, and the spans of its loops in which they are inside their tensors.

    Names that hold spans and guards are written before the loops; ``fresh`` returns a new name."""

    def __init__(self, group: Group, ints: Ints, writer: Writer, fresh: Callable[[str], str]) -> None:
        self.group, self.ints, self.w, self.fresh = group, ints, writer, fresh
        self._sites: dict[tuple[int, Index], Site] = {}
        #: spans that are written, by dimension and the texts of their ends
        self._hoisted: dict[tuple[int, str, str], Span] = {}
        #: the different spans along each dimension
        self.spans: dict[int, list[Span]] = {}
        #: all sites have the same spans
        self.is_uniform = True
        self._collect()

    def _collect(self) -> None:
        sites = []
        for nest in self.group.nests:
            index = align(self.group.vars, nest.value.type.shape, self.ints)
            sites += [self.site(f.region, at) for f, at in leaves(nest.value, index, self.ints) if isinstance(f, Fetch)]
            if nest.region is not None:
                sites.append(self.site(nest.region, self.group.vars))
        for site in sites:
            for dim, span in site.spans.items():
                spans = self.spans.setdefault(dim, [])
                if span not in spans:
                    spans.append(span)
        signatures = {tuple(sorted(s.spans.items())) for s in sites}
        self.is_uniform = len(signatures) <= 1

    def site(self, region: Region, index: Index) -> Site:
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
        if not self.group.dims:
            site.checks[:0] = guards
            return
        name = self.fresh(f"{site.region.tensor.name.lower()}_in")
        self.w(f"const bool {name} = {' && '.join(guards)};")
        if not site.spans:
            dim = self.group.dims[0]
            site.spans[dim] = Span(ZERO, self.ints.cpp(self.group.domain[dim]))
        dim, (low, high) = next(iter(site.spans.items()))
        end = self.fresh(f"{site.region.tensor.name.lower()}_end")
        self.w(f"const int64_t {end} = {name} ? {high} : {low};")
        site.spans[dim] = Span(low, end)

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
            self._hoisted[key] = Span(low, high)
        return self._hoisted[key]

    def fast_ranges(self) -> dict[int, Span]:
        """Write, before the loops, the range of each dimension in which all elements are inside. Returns the ranges."""
        result = {}
        for dim, spans in self.spans.items():
            lows = list(dict.fromkeys(span.low for span in spans if span.low != ZERO)) or [ZERO]
            highs = list(dict.fromkeys(span.high for span in spans))
            low, high = lows[0], highs[0]
            for text in lows[1:]:
                low = f"kl::imax({low}, {text})"
            for text in highs[1:]:
                high = f"kl::imin({high}, {text})"
            may_cross = low != ZERO and len(spans) > 1  # the largest begin may lie after the least end
            high = f"kl::imax({low}, {high})" if may_cross else high
            low = self._named(low, dim, "begin") if len(lows) > 1 else low
            high = self._named(high, dim, "end") if may_cross or len(highs) > 1 else high
            result[dim] = Span(low, high)
        return result

    def _named(self, text: str, dim: int, word: str) -> str:
        name = self.fresh(f"{self.group.vars[dim]}_all_{word}")
        self.w(f"const int64_t {name} = {text};")
        return name


def start_of_region(region: Region, ints: Ints) -> str:
    """Return the pointer to the first element of ``region``, as C++."""
    offset, stride = num(0), num(1)
    for item, size in reversed(list(zip(region.index, region.tensor.shape, strict=True))):
        start = item.at if isinstance(item, Point) else item.start
        offset = int_op("+", int_op("*", start, stride), offset)
        stride = int_op("*", size, stride)
    text = ints.cpp(offset if ints.const(offset) is None else ints.fold(offset))
    return plus(ints.tensor(region.tensor), text)
