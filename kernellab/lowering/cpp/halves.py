"""Strips: short copies of a row with which a loop computes and which stay in the L1 cache.

A strip of f16 is widened to floats before the loop and narrowed after it. Compilers convert f16 values one by one
unless the machine computes with them, and the whole loop stays scalar. Rows of bf16 need no strips: their conversion is
a shift. A row that every iteration reads, such as the weights of a norm, is converted once, before the loops.

A strip of a large result is written past the caches after the loop; an ordinary store would first read the memory that
it overwrites."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from kernellab.lowering.c_family.index import Index, align, leaves, plus
from kernellab.lowering.c_family.ints import Ints
from kernellab.lowering.c_family.nests import (
    Block,
    Fetch,
    LoopItem,
    Nest,
    NestKind,
    drop_steps,
    steps_of,
)
from kernellab.lowering.c_family.writer import Writer
from kernellab.lowering.cpp.site import Site, Span
from kernellab.sketch.program.ints import IntExpr, product
from kernellab.sketch.program.program import DType, Point, Program, Range, Region, Tensor, TensorRole, Tile

#: least elements of a loop with a strip; the same for a row that is written past the caches
_LEAST_LOOP, _LEAST_STREAMED = 16, 512
#: bytes of a result from which it is written past the caches: none keeps it until it is read
_LARGE = 8 << 20


def streamed(program: Program, ints: Ints) -> frozenset[str]:
    """Return the results of ``program`` that are written past the caches: large ones of float32. No sketch reads a
    result."""
    results = [t for t in program.tensors if t.role is TensorRole.OUT and t.dtype is DType.F32]
    return frozenset(t.name for t in results if _bytes(t, ints) >= _LARGE)


def _bytes(tensor: Tensor, ints: Ints) -> int:
    return (ints.const(product(tensor.shape)) or 0) * tensor.dtype.bytes


def convert_once(block: Block, written: frozenset[str]) -> None:
    """Move loads of f16 that do not depend on a loop before it; ``written`` names the tensors that the kernel
    changes."""
    writers = Counter(uid for step in steps_of(block) for uid in step.writes)
    for loop in [s for s in block.steps if isinstance(s, LoopItem)]:
        loads = [
            n
            for n in _loads(loop.body)
            if n.tile is not None and writers[n.tile.uid] == 1 and _is_invariant(n, written)
        ]
        tiles = {n.tile.uid: n.tile for n in loads if n.tile is not None}
        drop_steps(loop.body, {id(n) for n in loads})
        _undeclare(loop.body, tiles)
        at = block.steps.index(loop)
        block.steps[at:at] = loads
        block.declares += tiles.values()


def _loads(block: Block) -> Iterator[Nest]:
    for step in block.steps:
        if isinstance(step, LoopItem):
            yield from _loads(step.body)
        elif isinstance(step, Nest) and step.kind is NestKind.POINT and isinstance(step.value, Fetch):
            yield step


def _is_invariant(load: Nest, written: frozenset[str]) -> bool:
    value = load.value
    assert isinstance(value, Fetch)
    region, bounds = value.region, []
    for item in region.index:
        bounds += [item.at] if isinstance(item, Point) else [item.start, item.extent, item.step]
    is_row = sum(isinstance(item, Range) for item in region.index) == 1
    is_fixed = not any(e.loop_vars() for e in bounds)
    return is_row and is_fixed and region.tensor.dtype is DType.F16 and region.tensor.name not in written


def _undeclare(block: Block, tiles: Mapping[str, Tile]) -> None:
    block.declares = [t for t in block.declares if t.uid not in tiles]
    for step in block.steps:
        if isinstance(step, LoopItem):
            _undeclare(step.body, tiles)


@dataclass(frozen=True)
class Row:
    """Contiguous elements of a tensor along a loop over ``var``, at ``base + var``; the array ``strip`` holds them."""

    tensor: str
    base: str
    strip: str
    is_stored: bool
    #: the function of kl_half.h that fills the strip, or writes it back: widen, narrow, or stream
    function: str

    def start(self, at: str) -> str:
        return f"{plus(self.tensor, self.base)} + {at}"


class _RowAccess(NamedTuple):
    region: Region
    at: Index
    is_stored: bool


@dataclass
class Strips:
    """The strips of one group; ``site`` returns the :class:`Site` of a region at an index."""

    ints: Ints
    w: Writer
    fresh: Callable[[str], str]
    site: Callable[[Region, Index], Site]
    #: tensors that are written past the caches
    streamed: frozenset[str] = frozenset()
    #: the element of a strip, by the tensor and address that it replaces, inside the loop over the strip
    _elements: dict[tuple[str, str], str] = field(default_factory=dict)

    def element(self, site: Site) -> str:
        """Return the strip's element that replaces the one at ``site``; "" if no strip holds it."""
        return self._elements.get((self.ints.tensor(site.region.tensor), site.address), "")

    def rows(self, nests: Sequence[Nest], variables: Index, var: str, extent: IntExpr) -> list[Row]:
        """Return the rows of f16 that a loop over ``var`` reads and writes, and those of large results, each once."""
        length = self.ints.const(extent)
        if length is not None and length < _LEAST_LOOP:
            return []
        streamed = self.streamed if length is None or length >= _LEAST_STREAMED else frozenset()
        if any(n.kind is not NestKind.POINT and n.kind is not NestKind.STORE for n in nests):
            streamed = frozenset()
        rows: dict[str, Row] = {}
        fetched, written = self._fetched(nests, variables), list(_written(nests))
        names = {region.tensor.name for region, _ in fetched} & {tensor for tensor, _ in written}
        accesses = [_RowAccess(region, at, is_stored=False) for region, at in fetched]
        accesses += [_RowAccess(region, variables, is_stored=True) for _, region in written if region is not None]
        for region, at, is_stored in accesses:
            # a tensor that the same loop writes must be read at that time
            name, is_half = region.tensor.name, region.tensor.dtype is DType.F16
            if name in names or not (is_half or (is_stored and name in streamed)):
                continue
            site = self.site(region, at)
            base, tensor = site.row(var), self.ints.tensor(region.tensor)
            place = f"{tensor}[{site.address}]"
            if base is not None and not site.checks and place not in rows:
                function = "stream" if not is_half else "narrow" if is_stored else "widen"
                rows[place] = Row(tensor, base, self.fresh(f"{tensor.lower()}_strip"), is_stored, function)
        return list(rows.values())

    def _fetched(self, nests: Sequence[Nest], variables: Index) -> list[tuple[Region, Index]]:
        return [
            (leaf.region, at)
            for nest in nests
            for leaf, at in leaves(nest.value, align(variables, nest.value.type.shape, self.ints), self.ints)
            if isinstance(leaf, Fetch)
        ]

    @contextmanager
    def over(self, rows: list[Row], var: str, span: Span) -> Iterator[Span]:
        """Write the loop over strips; yields the first index of a strip and its end, for the loop inside."""
        if not rows:
            yield span
            return
        low, high = span
        at, to = self.fresh(f"{var}_first"), self.fresh(f"{var}_last")
        size = "kl::BURST" if any(row.function == "stream" for row in rows) else "kl::STRIP"
        with self.w.block(f"for (int64_t {at} = {low}; {at} < {high}; {at} += {size})", comment=False):
            self.w(f"const int64_t {to} = kl::imin({at} + {size}, {high});")
            for row in rows:
                self.w(f"alignas(64) float {row.strip}[{size}];")
                if not row.is_stored:
                    self.w(f"kl::{row.function}({row.strip}, {row.start(at)}, {to} - {at});")
            self._elements = {(row.tensor, plus(row.base, var)): f"{row.strip}[{var} - {at}]" for row in rows}
            yield Span(at, to)
            self._elements = {}
            for row in rows:
                if row.is_stored:
                    self.w(f"kl::{row.function}({row.start(at)}, {row.strip}, {to} - {at});")


def _written(nests: Sequence[Nest]) -> Iterator[tuple[str, Region | None]]:
    """Yield each tensor that is written, with the region if a plain store writes it."""
    for nest in nests:
        if nest.region is not None:
            yield nest.region.tensor.name, nest.region if nest.kind is NestKind.STORE else None
        if nest.scatter is not None:
            yield nest.scatter.tensor.name, None


__all__ = ["Row", "Strips", "convert_once", "streamed"]
