"""Places in tensors as Triton pointers and masks.

A mask is written only for what is not proved: a read past an edge returns the pad, a write past it does nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from kernellab.lowering.python_text import Names
from kernellab.lowering.triton.folded import RangeLanes
from kernellab.lowering.triton.shapes import Extent, Ints, Shapes, minus_one, shaped
from kernellab.lowering.triton.text import Writer, is_atom
from kernellab.sketch.program.ints import IntExpr, IntKind, int_op, num
from kernellab.sketch.program.program import Point, Range, Region


@dataclass(frozen=True)
class Place:
    """Pointers to a tile's elements in ``pointer``; ``mask`` is "" if every lane may be accessed."""

    pointer: str
    mask: str


@dataclass
class PlaceWriter:
    """Writes places. Index vectors are defined once in a block and reused (``n_at = n + tl.arange(0, BLOCK)``)."""

    ints: Ints
    shapes: Shapes
    names: Names
    out: Writer
    int_text: Callable[[IntExpr], str]
    interpreter: bool
    #: constexprs that a person may change in the lowered text: no proof uses their values
    tunables: frozenset[str]
    #: names of index vectors by their code, for each block around, innermost last
    _blocks: list[dict[str, str]] = field(default_factory=lambda: [{}])
    #: facts without the tunables' values
    _untuned: Ints = field(init=False)

    def __post_init__(self) -> None:
        consts = self.ints.consts
        self._untuned = Ints({name: consts[name] for name in consts if name not in self.tunables})

    def enter(self) -> None:
        self._blocks.append({})

    def leave(self, *, release: bool) -> None:
        """End a block; ``release``: its names may be used again (after a loop; the branches of an if must not share a
        name)."""
        ended = self._blocks.pop()
        if release:
            for name in ended.values():
                self.names.release(name)

    def place(
        self, region: Region, *, write: bool, lanes: tuple[RangeLanes, ...] = (), is_reversed: bool = False
    ) -> Place:
        """Return the region's elements; ``lanes`` has the positions of its ranges in a tile of another shape (two
        dimensions).

        ``is_reversed``: the tile has the region's ranges in reverse order, the innermost first."""
        tensor = region.tensor
        rank = 2 if lanes else len(region.shape)
        axis, step = (rank - 1, -1) if is_reversed else (0, 1)
        scalars: list[str] = []
        vectors: list[str] = []
        masks: list[str] = []
        scalar_masks = 0
        dims = iter(range(len(region.index)))
        for d in dims:
            index, size = region.index[d], tensor.shape[d]
            if isinstance(index, Point):
                at = self.int_text(index.at)
                tests = self._point_mask(index.at, at, size)
                scalar_masks += len(tests)
                masks += tests
                if index.at != num(0):
                    scalars.append(self._term(at, tensor.shape[d + 1 :]))
            elif lanes and not is_reversed and self._joined(region, d, lanes[axis : axis + 2]):
                outer, inner = lanes[axis : axis + 2]
                both = RangeLanes(outer.axis, outer.total, inner.stride, int_op("*", outer.extent, inner.extent))
                at = self._vector(index, outer.axis, rank, size, self._spread(both))
                next(dims)  # the next dimension is part of this one
                vectors.append(self._term(at, tensor.shape[d + 2 :]))
                axis += 2
            else:
                if lanes:
                    at = self._vector(index, lanes[axis].axis, rank, size, self._spread(lanes[axis]))
                else:
                    at = self._vector(index, axis, rank, size)
                masks += self._range_mask(index, at, axis, rank, size, write=write)
                vectors.append(self._term(at, tensor.shape[d + 1 :]))
                axis += step
        pointer = " + ".join([tensor.name, *scalars, *vectors])
        mask = " & ".join(dict.fromkeys(masks))
        if self.interpreter and scalar_masks and len(masks) > scalar_masks:
            # the interpreter converts a scalar condition to an integer if it is combined with a vector of conditions
            mask = f"({mask}) != 0"
        return Place(pointer, mask)

    def _term(self, at: str, inner: tuple[IntExpr, ...]) -> str:
        """Return the offset of the index ``at`` in a dimension; ``inner``: the sizes of the dimensions inside it."""
        return " * ".join([_factor(at), *(_factor(self.int_text(size)) for size in inner if not size.is_one)])

    def _joined(self, region: Region, d: int, lanes: tuple[RangeLanes, ...]) -> bool:
        """Are all elements of dimensions ``d`` and the next one lanes in their order? Their index is the lane, then."""
        ranges, sizes = region.index[d : d + 2], region.tensor.shape[d : d + 2]
        if len(ranges) < 2 or len(lanes) < 2 or not all(isinstance(ix, Range) for ix in ranges):
            return False
        outer, inner = lanes
        whole = all(
            isinstance(ix, Range) and ix.start == num(0) and ix.step.is_one and self.ints.equal(ix.extent, size)
            and self.shapes.extent(ix.extent).exact
            for ix, size in zip(ranges, sizes, strict=True)
        )  # fmt: skip
        is_row_major = self.ints.equal(outer.stride, int_op("*", inner.stride, inner.extent))
        return whole and outer.axis == inner.axis and is_row_major

    def _spread(self, lanes: RangeLanes) -> str:
        """Return a range's indices along a dimension that it shares with others."""
        padded = self.shapes.extent(lanes.extent).padded
        if self.ints.equal(lanes.total, lanes.extent):
            return f"{self.shapes.arange}(0, {padded})"
        code = f"{self.shapes.arange}(0, {self.int_text(lanes.total)})"
        if not lanes.stride.is_one:
            code = f"({code} // {_factor(self.int_text(lanes.stride))})"
        return code if self.ints.equal(int_op("*", lanes.stride, lanes.extent), lanes.total) else f"({code} % {padded})"

    def _vector(self, index: Range, axis: int, rank: int, size: IntExpr, lanes: str = "") -> str:
        lanes = lanes or f"{self.shapes.arange}(0, {self.shapes.extent(index.extent).padded})"
        code = lanes if index.step.is_one else f"{lanes} * {_factor(self.int_text(index.step))}"
        if index.start != num(0):
            code = f"{self.int_text(index.start)} + {code}"
        code = code if rank == 1 else shaped(f"({code})" if code != lanes else code, axis, rank)
        for block in self._blocks:
            if code in block:
                return block[code]
        stem = _base_name(index.start) or _base_name(size) or "lane"
        name = self.names.fresh(f"{stem.lower() if stem.isupper() else stem}_at")
        self.out.put(f"{name} = {code}")
        self._blocks[-1][code] = name
        return name

    def surely_inside(self, at: IntExpr, size: IntExpr) -> bool:
        """Is ``at`` proved to be an index of a dimension of that size?"""
        return self.ints.nonnegative(at) and self._inside(self.ints.high(at), size, at, None) is True

    def _point_mask(self, at: IntExpr, code: str, size: IntExpr) -> list[str]:
        tests = [] if self.ints.nonnegative(at) else [f"({code} >= 0)"]
        high = self.ints.high(at)
        state = self._inside(high, size, at, None)
        if state is True:
            return tests
        test = f"({code} < {self.int_text(size)})"
        return [*tests, f"({test} | {state})" if isinstance(state, str) else test]

    def _range_mask(self, index: Range, at: str, axis: int, rank: int, size: IntExpr, *, write: bool) -> list[str]:
        extent = self.shapes.extent(index.extent)
        tests = [] if self.ints.nonnegative(index.start) else [f"({at} >= 0)"]
        whole = index.start == num(0) and index.step.is_one and self.ints.equal(index.extent, size)
        if whole:
            if extent.exact:
                return tests
            test = f"({at} < {self.int_text(size)})"
            return [*tests, f"({test} | {extent.flag})" if extent.flag else test]
        if write and not extent.exact:
            tests.append(self.shapes.real(index.extent, self.int_text(index.extent), axis, rank))
        last = minus_one(index.extent if extent.exact else _constexpr(extent.padded))
        if write and not extent.exact:
            last = minus_one(index.extent)
        start = self.ints.high(index.start)
        high = None if start is None else int_op("+", start, int_op("*", last, index.step))
        state = self._inside(high, size, index.start, extent)
        if state is not True:
            test = f"({at} < {self.int_text(size)})"
            tests.append(f"({test} | {state})" if isinstance(state, str) else test)
        return tests

    def _inside(self, high: IntExpr | None, size: IntExpr, at: IntExpr, extent: Extent | None) -> bool | str:
        """Is ``high < size``? True if proved, the name of a flag with the answer at launch, or False if unknown."""
        if high is None:
            return False
        if any(self._fits(bound, size) for bound in _arms(high)):
            return True
        if not high.names() & self.tunables and self.ints.const(int_op("-", size, high)) is not None:
            return False
        return self._flag(high, size, at, extent)

    def _fits(self, high: IntExpr, size: IntExpr) -> bool:
        room = int_op("-", minus_one(size), high)
        text = self._untuned.canonical(room)
        self._untuned.loops = self.ints.loops
        low = int(text) if text.lstrip("-").isdigit() else self._untuned.low(room)
        return low is not None and low >= 0

    def _flag(self, high: IntExpr, size: IntExpr, at: IntExpr, extent: Extent | None) -> str:
        loop = self.ints.loops.get(at.name) if at.kind is IntKind.LOOP else None
        if (
            loop is not None
            and extent is not None
            and extent.exact
            and _is_multiple(loop.start, loop.step)
            and any(self.ints.equal(arm, size) for arm in _least(loop.stop))
            and self.ints.equal(loop.step, extent.expr)
        ):
            condition = int_op("==", int_op("%", size, loop.step), num(0))
        else:
            condition = int_op("<", high, size)
        stem = _base_name(size) or at.name or "ALL"
        return self.shapes.flag(f"EVEN_{stem}", condition)


def _is_multiple(start: IntExpr, step: IntExpr) -> bool:
    """Is ``start`` 0, or rounded down to a multiple of ``step``?"""
    return start == num(0) or (start.op == "*" and len(start.args) == 2 and start.args[1] == step)


def _least(stop: IntExpr) -> tuple[IntExpr, ...]:
    """Return upper bounds of a loop's end: itself, or each argument if it is a ``min``."""
    return stop.args if stop.kind is IntKind.OP and stop.op == "min" else (stop,)


def _arms(high: IntExpr) -> list[IntExpr]:
    """Return upper bounds of ``high``: itself, and with either argument of a ``min`` in it."""
    if high.kind is not IntKind.OP:
        return [high]
    if high.op == "min":
        return [high, *(arm for a in high.args for arm in _arms(a))]
    if high.op in ("+", "-") and len(high.args) == 2:
        return [int_op(high.op, arm, high.args[1]) for arm in _arms(high.args[0])]
    return [high]


def _constexpr(name: str) -> IntExpr:
    return IntExpr(IntKind.CONSTEXPR, name=name)


def _factor(code: str) -> str:
    return code if is_atom(code) or code.endswith("]") else f"({code})"


def _base_name(expr: IntExpr) -> str:
    """Return the first loop variable of an index, or the symbol that it is."""
    if expr.kind is not IntKind.OP:
        return expr.name
    return next((name for name in map(_base_name, expr.args) if name and expr.loop_vars()), "")


@dataclass(frozen=True)
class AlignedRow:
    """A tile of one row, in a loop that begins where a vector does (``for j in range(0 - i * N % V, N, T)``): rows of
    any length are moved in whole vectors. What it reads before the row is the pad; it writes nothing there.

    Fields: the flat index of the row's first element in its tensor, the tile's position in the row, the row's length,
    the tile's extent, and the elements of a vector, at whose multiples the tile begins."""

    first: IntExpr
    at: IntExpr
    length: IntExpr
    extent: IntExpr
    vector: int


def aligned_row(region: Region, ints: Ints) -> AlignedRow | None:
    """Return the row of which ``region`` is a tile, in a loop that begins at a multiple of a vector; None if it is no
    such tile."""
    *rows, columns = region.index
    if isinstance(columns, Point) or not columns.step.is_one or not all(isinstance(ix, Point) for ix in rows):
        return None
    loop = ints.loops.get(columns.start.name) if columns.start.kind is IntKind.LOOP else None
    vector = _vector_width(loop.start) if loop is not None else 0
    if loop is None or vector < 2:
        return None
    first, sizes = num(0), region.tensor.shape
    for d, index in enumerate(rows):
        assert isinstance(index, Point)
        first = int_op("+", int_op("*", first, sizes[d]), index.at)
    first = int_op("*", first, sizes[-1])
    before = int_op("-", num(0), int_op("%", first, num(vector)))
    extent = ints.const(columns.extent)
    whole = extent is not None and extent % vector == 0 and ints.equal(columns.extent, loop.step)
    fits = whole and ints.equal(loop.start, before) and ints.equal(loop.stop, sizes[-1])
    return AlignedRow(first, columns.start, sizes[-1], columns.extent, vector) if fits else None


def _vector_width(start: IntExpr) -> int:
    """Return the ``V`` of a start ``0 - first % V``; 0 for any other."""
    if start.kind is not IntKind.OP or start.op != "-":
        return 0
    rest = start.args[-1]
    is_remainder = rest.kind is IntKind.OP and rest.op == "%" and rest.args[1].kind is IntKind.NUM
    return rest.args[1].value if is_remainder else 0


__all__ = ["AlignedRow", "Place", "PlaceWriter", "aligned_row"]
