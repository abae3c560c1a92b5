"""Sorted rows: sort, top-k and their positions as values over axes.

One program sorts a row (:class:`Order`). A row that is too long for one program is searched in buckets, if only its
first elements are needed, or sorted in runs that are merged in pairs; each step is a launch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kernellab.capture import Node, Ref
from kernellab.capture.graph import Extent
from kernellab.designer.frontend.build import Builder, Handler
from kernellab.designer.frontend.gather import chosen, picked
from kernellab.designer.ir import extents
from kernellab.designer.ir.arithmetic import cast, compute, is_float, wide
from kernellab.designer.ir.axes import Axis, Index, Ix
from kernellab.designer.ir.expr import Expr, Iota, Leaf, Num, Op, Order, Red
from kernellab.designer.ir.extents import fixed
from kernellab.designer.ir.pads import neutral

#: length of a run that one program sorts, if a row is too long for one program
RUN = 2048


@dataclass(frozen=True)
class _Request:
    """What is read of a sorted operand: at ``index``, the values (``item`` 0) or their original positions (1).

    Rows lie along ``dim``. ``count``: only the first elements are needed; None: all. ``down``: largest first.
    """

    b: Builder
    node: Node
    index: Index
    item: int
    dim: int
    count: int | None
    down: bool

    @property
    def source(self) -> Ref:
        source: Ref = self.node.args[0]
        return source

    @property
    def shape(self) -> tuple[Extent, ...]:
        return self.b.shape(self.source)

    @property
    def source_dtype(self) -> str:
        return self.b.dtype(self.source)

    @property
    def dtype(self) -> str:
        return "int64" if self.item else self.source_dtype

    def along(self, index: Index, *entries: Ix) -> Index:
        """Return ``index`` with ``entries`` in place of that of the rows."""
        return (*index[: self.dim], *entries, *index[self.dim + 1 :])

    def from_memory(self) -> Leaf:
        """Return the result, which is stored whole, at the index."""
        return Leaf(self.b.stored(Ref(self.node.name, self.item)), self.index, self.dtype)


def _sorted_row(r: _Request) -> Expr:
    """Return element ``index`` of the sorted operand."""
    b, shape, dtype = r.b, r.shape, r.source_dtype
    if not shape or shape[r.dim] == 1:
        return Num(0, "int64") if r.item else b.value(r.source, r.index)
    length, ix = shape[r.dim], r.index[r.dim]
    first = ix.extent if r.count is None and ix.plain else r.count
    most = b.options.longest_sort
    if most and isinstance(length, int) and length > most and isinstance(first, int) and first > 1:
        size = _bucket(length, first, most)
        if size and (r.down or not is_float(dtype)):
            return _of_buckets(r, first, size)
        return _of_runs(r, first)
    if r.count == 1:
        bound = b.bound(shape, [r.dim], r.index)
        kind = "max" if r.down else "min"
        arg = cast(b.value(r.source, bound), dtype)
        return b.reduce(f"arg{kind}" if r.item else kind, arg, bound, [r.dim], r.dtype, r.node.line)
    wanted_length = length if r.count is None else r.count
    if not (len(ix.leaves()) == 1 and ix.plain and extents.same(ix.extent, wanted_length)):
        return r.from_memory()
    is_whole = extents.same(length, wanted_length)
    bound = r.index if is_whole else b.bound(shape, [r.dim], r.along(r.index, Ix()))
    over = bound[r.dim].leaves()
    is_stored = len(over) != 1 or _joins(b, r.source, r.dim)
    if not is_stored:
        arg = cast(b.value(r.source, bound), dtype)
        # reading a view may have split the axis
        is_stored = bool(over[0].parts)
    if is_stored:
        over = (b.row_axis(r.source, r.dim),)
        # ties are those of the rounded values
        arg = Leaf(b.stored(r.source), r.along(bound, Ix(over)), dtype)
    kind = "order" if r.item else "value"
    return Order(kind, arg, over[0], r.dtype, False, r.node.line, ix.leaves()[0], r.down)


def _bucket(length: int, count: int, longest: int) -> int:
    """Return the bucket size for which one program can sort the bests of all buckets and ``count`` whole buckets; 0 if
    none."""
    fits = [g for g in (1 << p for p in range(1, 14)) if -(-length // g) <= longest and count * g <= longest]
    return min((g for g in fits if -(-length // g) >= count), key=lambda g: length // g + count * g, default=0)


def _of_buckets(r: _Request, count: int, size: int) -> Expr:
    """Like :func:`_sorted_row`, for a row too long for one program: the best ``count`` are in the buckets with the best
    bests.

    Equal elements keep their order: among buckets with equal bests the earlier ones come first, and the chosen buckets
    are searched from first to last.
    """
    b, ix, line = r.b, r.index[r.dim], r.node.line
    buckets = _best_buckets(r, count, size)
    if not (len(ix.leaves()) == 1 and ix.plain):
        return r.from_memory()
    used = {leaf for d, i in enumerate(r.index) if d != r.dim for leaf in i.within()} | set(ix.leaves())
    over = b.pick_axis(count * size, used)

    def place(candidate: Expr) -> Expr:
        """Return the place in the row of an element of the chosen buckets."""
        which = Op("floordiv", (candidate, Num(size, "int64")), "int64")
        bucket = Op("cast", (Leaf(buckets, r.along(r.index, chosen(which)), "int32"),), "int64")
        return _place(bucket, Op("mod", (candidate, Num(size, "int64")), "int64"), size)

    arg = cast(_element(r, size, r.index, place(Iota(Ix((over,))))), r.source_dtype)
    kind = "order" if r.item else "value"
    result = Order(kind, arg, over, r.dtype, False, line, ix.leaves()[0], r.down)
    return place(result) if r.item else result


def _best_buckets(r: _Request, count: int, size: int) -> str:
    """Return the tensor of the ``count`` buckets of each row with the best bests, in their order in the row."""
    b, line, length = r.b, r.node.line, fixed(r.shape[r.dim])
    shape = (*r.shape[: r.dim], count, *r.shape[r.dim + 1 :])
    index = _new_axes(shape)
    rank, bucket, lane = index[r.dim].axes[0], Axis(-(-length // size)), Axis(size)
    if length % size == 0:
        value = b.value(r.source, r.along(index, Ix((bucket, lane))))
    else:
        value = _element(r, size, index, _place(Iota(Ix((bucket,))), Iota(Ix((lane,))), size))
    best = Red("max" if r.down else "min", cast(value, r.source_dtype), (lane,), r.source_dtype, line)
    order = Order("order", best, bucket, "int64", False, line, rank, r.down)
    key = f"{r.node.name}_{r.dim}_{count}"
    best_first = b.kept(f"{key}_best", index, Op("cast", (order,), "int32"), shape)
    index = _new_axes(shape)
    rank = index[r.dim].axes[0]
    in_row_order = Order("value", Leaf(best_first, index, "int32"), rank, "int32", False, line, rank, False)
    return b.kept(f"{key}_buckets", index, in_row_order, shape)


def _element(r: _Request, size: int, index: Index, place: Expr) -> Expr:
    """Return the element at ``place`` of the row at ``index``; past the row's end the value that is never the best."""
    length, dtype = fixed(r.shape[r.dim]), r.source_dtype
    here = picked(r.b, r.source, r.along(index, chosen(place)))
    if length % size == 0:
        return here
    inside = Op("lt", (place, Num(length, "int64")), "bool")
    return Op("where", (inside, here, Num(neutral("max" if r.down else "min", dtype), dtype)), dtype)


def _new_axes(shape: tuple[Extent, ...]) -> Index:
    """Return an index of new axes into ``shape``."""
    return tuple(Ix() if e == 1 else Ix((Axis(e),)) for e in shape)


def _place(bucket: Expr, lane: Expr, size: int) -> Expr:
    return Op("add", (Op("mul", (bucket, Num(size, "int64")), "int64"), lane), "int64")


def _of_runs(r: _Request, count: int) -> Expr:
    """Like :func:`_sorted_row`, for a row too long for one program: sort runs, then merge pairs of runs until one is
    left.

    No run is longer than ``count``. The last run is padded with the value that sorts last.
    """
    b, shape, dim = r.b, r.shape, r.dim
    runs, width = -(-fixed(shape[dim]) // RUN), min(RUN, count)
    index = _in_runs(shape, dim, runs, width)
    values = _sorted_runs(r, index)
    refs = [*(ref for n in b.graph.nodes for ref in n.refs()), *b.graph.outputs]
    positions_read = any(ref.name == r.node.name and ref.item == 1 for ref in refs)
    key, level = f"{r.node.name}_{dim}_{count}", 0

    def stored(names: Sequence[str], at: Index, exprs: Sequence[Expr], row: tuple[int, ...]) -> list[str]:
        """Return the tensors of the values and, if they are read, the positions; one launch stores both."""
        named = zip(names, exprs if positions_read else exprs[:1], (False, True), strict=False)
        extent = (*shape[:dim], *row, *shape[dim + 1 :])
        return [b.kept(f"{key}_{name}", at, expr, extent, joins=joins) for name, expr, joins in named]

    while runs > 1:
        tensors = stored((f"runs{level}", f"places{level}"), index, values, (runs, width))
        before = _Runs(tensors, runs, width)
        runs, width = -(-runs // 2), min(2 * width, count)
        index = _in_runs(shape, dim, runs, width)
        values = _Merge(r, before, index).elements()
        level += 1
    results = [values[0], *(cast(e, "int64") for e in values[1:])]
    row_index = (*index[:dim], *index[dim + 1 :])
    return Leaf(stored(("values", "order"), row_index, results, (width,))[r.item], r.index, results[r.item].dtype)


def _sorted_runs(r: _Request, index: Index) -> list[Expr]:
    """Return the values and the positions at ``index`` of runs of the row, each of which one program sorts."""
    b, dim, dtype, line = r.b, r.dim, r.source_dtype, r.node.line
    length, lane = fixed(r.shape[dim]), Axis(RUN)
    run, rank = index[dim].axes[0], index[dim + 1].axes[0]
    place = _place(Iota(Ix((run,))), Iota(Ix((lane,))), RUN)
    if length % RUN == 0:
        arg = b.value(r.source, (*index[:dim], Ix((run, lane)), *index[dim + 2 :]))
    else:
        nearest = Op("min", (place, Num(length - 1, "int64")), "int64")
        here = picked(b, r.source, (*index[:dim], chosen(nearest), *index[dim + 2 :]))
        inside = Op("lt", (place, Num(length, "int64")), "bool")
        arg = Op("where", (inside, here, _last_of_all(dtype, r.down)), dtype)
    arg = cast(arg, dtype)
    values = Order("value", arg, lane, dtype, False, line, rank, r.down)
    places = Order("order", arg, lane, "int64", False, line, rank, r.down)
    return [values, Op("cast", (_place(Iota(Ix((run,))), places, RUN),), "int32")]


class _Runs(NamedTuple):
    """``runs`` sorted runs of ``width`` elements: the tensors of the values and, if they are read, the positions."""

    tensors: list[str]
    runs: int
    width: int


def _in_runs(shape: tuple[Extent, ...], dim: int, runs: int, width: int) -> Index:
    """Return an index of new axes into ``runs`` runs of ``width`` elements along ``dim``."""
    return _new_axes((*shape[:dim], runs, width, *shape[dim + 1 :]))


def _last_of_all(dtype: str, down: bool) -> Expr:
    """Return the value of ``dtype`` that sorts last; ascending it is NaN."""
    if is_float(dtype) and not down:
        return Op("sub", (Num(math.inf, dtype), Num(math.inf, dtype)), dtype)
    return Num(neutral("max" if down else "min", dtype), dtype)


class _Merge:
    """The merge of two neighbouring runs at an index; equal elements of the first run come first.

    Of the elements before the k-th, those of the first run are counted by bisection: it has at least ``i`` of them if
    its ``i``-th precedes the second run's ``k - i``-th (after the one on a diagonal: Odeh, Green, Mwassi, Shmueli,
    Birk: Merge Path, 2012).
    """

    def __init__(self, r: _Request, before: _Runs, at: Index) -> None:
        self._r, self._before, self._at = r, before, at
        pair, self._k = r.b.position(at[r.dim]), r.b.position(at[r.dim + 1])
        self._width: Expr = Num(before.width, "int64")
        self._first = Op("mul", (pair, Num(2, "int64")), "int64")
        self._second = Op("add", (self._first, Num(1, "int64")), "int64")
        self._is_single = Op("eq", (self._first, Num(before.runs - 1, "int64")), "bool")
        self._second_width: Expr = self._width
        if before.runs % 2:
            # the last run has no neighbour
            self._second = Op("min", (self._second, Num(before.runs - 1, "int64")), "int64")
            self._second_width = Op("where", (self._is_single, Num(0, "int64"), self._width), "int64")

    def elements(self) -> list[Expr]:
        """Return the k-th value and, if they are stored, its position."""
        dtype, line, first_count = self._r.source_dtype, self._r.node.line, self._count_of_first()
        second_count = _less(self._k, first_count)
        first_has_more = Op("lt", (first_count, self._width), "bool")
        from_first = Op("logical_and", (first_has_more, self._goes_first(first_count, second_count)), "bool")
        from_first = Op("logical_or", (Op("ge", (second_count, self._second_width), "bool"), from_first), "bool")
        merged: list[Expr] = []
        for which in range(len(self._before.tensors)):
            x, y = self._read(which, self._first, first_count), self._read(which, self._second, second_count)
            merged.append(Op("where", (from_first, x, y), x.dtype, line))
        if self._before.runs % 2:
            # a run without a neighbour is padded
            beyond = Op("logical_and", (self._is_single, Op("ge", (self._k, self._width), "bool")), "bool")
            merged[0] = Op("where", (beyond, _last_of_all(dtype, self._r.down), merged[0]), dtype, line)
        return merged

    def _count_of_first(self) -> Expr:
        """Return how many of the first ``k`` elements of the merge are from the first run, by bisection."""
        line = self._r.node.line
        count: Expr = Op("max", (_less(self._k, self._second_width), Num(0, "int64")), "int64")
        limit = Op("min", (self._k, self._width), "int64")
        for bit in reversed(range(self._before.width.bit_length())):
            ahead = Op("add", (count, Num(1 << bit, "int64")), "int64", line)
            takes = self._goes_first(_less(ahead, Num(1, "int64")), _less(self._k, ahead))
            takes = Op("logical_and", (Op("le", (ahead, limit), "bool"), takes), "bool")
            count = Op("where", (takes, ahead, count), "int64", line)
        return count

    def _goes_first(self, i: Expr, j: Expr) -> Expr:
        """Return whether element i of the first run precedes element j of the second."""
        dtype, down = self._r.source_dtype, self._r.down
        x = compute(self._read(0, self._first, i), wide(dtype))
        y = compute(self._read(0, self._second, j), wide(dtype))
        precedes = Op("ge" if down else "le", (x, y), "bool", self._r.node.line)
        if not is_float(dtype):
            return precedes
        return Op("logical_or", (precedes, Op("isnan", (x if down else y,), "bool")), "bool")

    def _read(self, which: int, run: Expr, place: Expr) -> Expr:
        """Return the value (0) or the position (1) at a place of a run."""
        dim, last = self._r.dim, self._before.width - 1
        inside = Op("max", (Op("min", (place, Num(last, "int64")), "int64"), Num(0, "int64")), "int64")
        index = (*self._at[:dim], chosen(run), chosen(inside), *self._at[dim + 2 :])
        return Leaf(self._before.tensors[which], index, "int32" if which else self._r.source_dtype)


def _less(x: Expr, y: Expr) -> Expr:
    return Op("sub", (x, y), "int64")


def _joins(b: Builder, source: Ref, dim: int) -> bool:
    """Return whether a row of ``source`` is a view of several dimensions, which must be contiguous to be sorted."""
    node = b.nodes.get(source.name)
    if node is None or not node.op.startswith(("aten.view.", "aten.reshape.", "aten._unsafe_view.")):
        return False
    made, base = b.shape(source), b.shape(node.args[0])
    ends = [extents.times(list(base[k:])) for k in range(len(base) + 1)]
    row, after = (extents.times(list(made[k:])) for k in (dim, dim + 1))
    first = max((k for k, end in enumerate(ends) if extents.same(end, row)), default=None)
    last = min((k for k, end in enumerate(ends) if extents.same(end, after)), default=None)
    if first is not None and last is not None:
        return last > first + 1
    if not isinstance(row, int) or not isinstance(after, int) or not all(isinstance(end, int) for end in ends):
        return False
    return any(after < end < row for end in ends if isinstance(end, int))


def _sort(b: Builder, node: Node, index: Index, item: int) -> Expr:
    stable = node.op.endswith(".stable")
    sort_args = list(node.args[1:])
    if stable and sort_args and isinstance(sort_args[0], bool):
        sort_args = sort_args[1:]
    dim = sort_args[0] if sort_args else node.keyword("dim", -1)
    down = sort_args[1] if len(sort_args) > 1 else node.keyword("descending", False)
    return _sorted_row(_Request(b, node, index, item or 0, _dim(b, node, dim), None, bool(down)))


def _topk(b: Builder, node: Node, index: Index, item: int) -> Expr:
    count = node.args[1]
    dim = node.args[2] if len(node.args) > 2 else node.keyword("dim", -1)
    down = node.args[3] if len(node.args) > 3 else node.keyword("largest", True)
    if not isinstance(count, int):
        raise b.refuse(node, "a number of elements that is not fixed")
    return _sorted_row(_Request(b, node, index, item or 0, _dim(b, node, dim), count, bool(down)))


def _dim(b: Builder, node: Node, dim: int) -> int:
    return dim % max(len(b.shape(node.args[0])), 1)


ORDERS: dict[str, Handler] = {"sort": _sort, "topk": _topk}
