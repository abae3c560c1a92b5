"""Sorted rows: sort, top-k and their positions as values over axes."""

from __future__ import annotations

import math

from kernellab.capture import Node, Ref
from kernellab.capture.graph import Extent
from kernellab.designer.frontend.build import Builder, Handler
from kernellab.designer.frontend.gather import chosen, picked
from kernellab.designer.frontend.pointwise import cast, compute, is_float, wide
from kernellab.designer.ir import extents
from kernellab.designer.ir.expr import Axis, Expr, Index, Iota, Ix, Leaf, Num, Op, Order, Red
from kernellab.designer.ir.extents import fixed
from kernellab.designer.ir.pads import neutral

#: length of a run that one program sorts, if a row is too long for one program
RUN = 2048


def _order(b: Builder, node: Node, index: Index, item: int, dim: int, count: int | None, down: bool) -> Expr:
    """Return element ``index`` of the sorted ``node`` operand along ``dim``: the value (0) or its original position
    (1)."""
    source = node.args[0]
    shape, dtype = b.shape(source), b.dtype(source)
    if not shape or shape[dim % len(shape)] == 1:
        return Num(0, "int64") if item else b.value(source, index)
    dim %= len(shape)
    length, first = shape[dim], index[dim].extent if count is None and index[dim].plain else count
    if (
        b.options.longest_sort
        and isinstance(length, int)
        and length > b.options.longest_sort
        and isinstance(first, int)
        and first > 1
    ):
        size = _bucket(length, first, b.options.longest_sort)
        if size and (down or not is_float(dtype)):
            return _of_buckets(b, node, index, item, dim, first, down, size)
        return _of_runs(b, node, index, item, dim, first, down)
    if count == 1:
        bound = b.bound(shape, [dim], index)
        arg = cast(b.value(source, bound), dtype)
        kind = "max" if down else "min"
        return b.reduce(f"arg{kind}" if item else kind, arg, bound, [dim], "int64" if item else dtype, node.line)
    wanted_length = shape[dim] if count is None else count
    ix = index[dim]
    if not (len(ix.leaves()) == 1 and ix.plain and extents.same(ix.extent, wanted_length)):
        return Leaf(b.stored(Ref(node.name, item)), index, "int64" if item else dtype)
    place = ix.leaves()[0]
    bound = (
        index
        if extents.same(shape[dim], wanted_length)
        else b.bound(shape, [dim], (*index[:dim], Ix(), *index[dim + 1 :]))
    )
    over = bound[dim].leaves()
    is_stored = len(over) != 1 or _joins(b, source, dim)
    if not is_stored:
        arg = cast(b.value(source, bound), dtype)
        # reading a view may have split the axis
        is_stored = bool(over[0].parts)
    if is_stored:
        over = (b.row_axis(source, dim),)
        # ties are those of the rounded values
        arg = Leaf(b.stored(source), (*bound[:dim], Ix(over), *bound[dim + 1 :]), dtype)
    return Order("order" if item else "value", arg, over[0], "int64" if item else dtype, False, node.line, place, down)


def _bucket(length: int, count: int, longest: int) -> int:
    """Return the bucket size for which one program can sort the bests of all buckets and ``count`` whole buckets; 0 if
    none."""
    fits = [g for g in (1 << p for p in range(1, 14)) if -(-length // g) <= longest and count * g <= longest]
    return min((g for g in fits if -(-length // g) >= count), key=lambda g: length // g + count * g, default=0)


def _of_buckets(b: Builder, node: Node, index: Index, item: int, dim: int, count: int, down: bool, size: int) -> Expr:
    """Like :func:`_order`, for a row too long for one program: the best ``count`` are in the buckets with the best
    bests.

    Equal elements keep their order: among buckets with equal bests the earlier ones come first, and the chosen buckets
    are searched from first to last.
    """
    source, ix = node.args[0], index[dim]
    shape, dtype = b.shape(source), b.dtype(source)
    length = fixed(shape[dim])

    def at(where: Index, place: Expr) -> Expr:
        here = picked(b, source, (*where[:dim], chosen(place), *where[dim + 1 :]))
        if length % size == 0:
            return here
        inside = Op("lt", (place, Num(length, "int64")), "bool")
        return Op("where", (inside, here, Num(neutral("max" if down else "min", dtype), dtype)), dtype)

    chosen_shape = (*shape[:dim], count, *shape[dim + 1 :])
    bucket_index = tuple(Ix() if e == 1 else Ix((Axis(e),)) for e in chosen_shape)
    rank, bucket, lane = bucket_index[dim].axes[0], Axis(-(-length // size)), Axis(size)
    if length % size == 0:
        value = b.value(source, (*bucket_index[:dim], Ix((bucket, lane)), *bucket_index[dim + 1 :]))
    else:
        value = at(bucket_index, _place(Iota(Ix((bucket,))), Iota(Ix((lane,))), size))
    best = Red("max" if down else "min", cast(value, dtype), (lane,), dtype, node.line)
    order = Order("order", best, bucket, "int64", False, node.line, rank, down)
    key = f"{node.name}_{dim}_{count}"
    best_tensor = b.kept(f"{key}_best", bucket_index, Op("cast", (order,), "int32"), chosen_shape)
    bucket_index = tuple(Ix() if e == 1 else Ix((Axis(e),)) for e in chosen_shape)
    rank = bucket_index[dim].axes[0]
    in_order = Order("value", Leaf(best_tensor, bucket_index, "int32"), rank, "int32", False, node.line, rank, False)
    buckets = b.kept(f"{key}_buckets", bucket_index, in_order, chosen_shape)

    if not (len(ix.leaves()) == 1 and ix.plain):
        return Leaf(b.stored(Ref(node.name, item)), index, "int64" if item else dtype)
    used = {leaf for d, i in enumerate(index) if d != dim for leaf in i.within()} | set(ix.leaves())
    over = b.pick_axis(count * size, used)

    def place(candidate: Expr) -> Expr:
        which = Op("floordiv", (candidate, Num(size, "int64")), "int64")
        here = Leaf(buckets, (*index[:dim], chosen(which), *index[dim + 1 :]), "int32")
        return _place(Op("cast", (here,), "int64"), Op("mod", (candidate, Num(size, "int64")), "int64"), size)

    arg = cast(at(index, place(Iota(Ix((over,))))), dtype)
    kind, result_dtype = ("order", "int64") if item else ("value", dtype)
    result = Order(kind, arg, over, result_dtype, False, node.line, ix.leaves()[0], down)
    return place(result) if item else result


def _place(bucket: Expr, lane: Expr, size: int) -> Expr:
    return Op("add", (Op("mul", (bucket, Num(size, "int64")), "int64"), lane), "int64")


def _of_runs(b: Builder, node: Node, index: Index, item: int, dim: int, count: int, down: bool) -> Expr:
    """Like :func:`_order`, for a row too long for one program: sort runs, then merge pairs of runs until one is left.

    No run is longer than ``count``. The last run is padded with the value that sorts last.
    """
    source, dtype = node.args[0], b.dtype(node.args[0])
    shape, length = b.shape(source), fixed(b.shape(source)[dim])
    runs, width = -(-length // RUN), min(RUN, count)
    run_index, lane = _in_runs(b, shape, dim, runs, width), Axis(RUN)
    run, rank = run_index[dim].axes[0], run_index[dim + 1].axes[0]
    place = _place(Iota(Ix((run,))), Iota(Ix((lane,))), RUN)
    if length % RUN == 0:
        arg = b.value(source, (*run_index[:dim], Ix((run, lane)), *run_index[dim + 2 :]))
    else:
        nearest = Op("min", (place, Num(length - 1, "int64")), "int64")
        here = picked(b, source, (*run_index[:dim], chosen(nearest), *run_index[dim + 2 :]))
        inside = Op("lt", (place, Num(length, "int64")), "bool")
        arg = Op("where", (inside, here, _last_of_all(dtype, down)), dtype)
    arg = cast(arg, dtype)
    key = f"{node.name}_{dim}_{count}"
    values = Order("value", arg, lane, dtype, False, node.line, rank, down)
    places = Order("order", arg, lane, "int64", False, node.line, rank, down)
    run_values: list[Expr] = [values, Op("cast", (_place(Iota(Ix((run,))), places, RUN),), "int32")]
    refs = [*(r for n in b.graph.nodes for r in n.refs()), *b.graph.outputs]
    placed = any(r.name == node.name and r.item == 1 for r in refs)
    level = 0
    while True:
        last: bool = runs == 1
        names = ("values", "order") if last else (f"runs{level}", f"places{level}")
        if last:
            run_values, run_index = (
                [run_values[0], *(cast(e, "int64") for e in run_values[1:])],
                (*run_index[:dim], *run_index[dim + 1 :]),
            )
        stored = (*shape[:dim], *([] if last else [runs]), width, *shape[dim + 1 :])
        named_values = zip(names, run_values if placed else run_values[:1], (False, True), strict=False)
        tensors = [
            b.kept(f"{key}_{name}", run_index, value, stored, joins=along) for name, value, along in named_values
        ]
        if last:
            return Leaf(tensors[item], index, run_values[item].dtype)
        runs, width, before = -(-runs // 2), min(2 * width, count), (runs, width)
        run_index = _in_runs(b, shape, dim, runs, width)
        run_values = _merged(b, tensors, dtype, run_index, dim, *before, down, node.line)
        level += 1


def _in_runs(b: Builder, shape: tuple[Extent, ...], dim: int, runs: int, width: int) -> Index:
    """Return an index of new axes into ``runs`` runs of ``width`` elements along ``dim``."""
    lengths = (*shape[:dim], runs, width, *shape[dim + 1 :])
    return tuple(Ix() if e == 1 else Ix((Axis(e),)) for e in lengths)


def _last_of_all(dtype: str, down: bool) -> Expr:
    """Return the value of ``dtype`` that sorts last; ascending it is NaN."""
    if is_float(dtype) and not down:
        return Op("sub", (Num(math.inf, dtype), Num(math.inf, dtype)), dtype)
    return Num(neutral("max" if down else "min", dtype), dtype)


def _merged(
    b: Builder, kept: list[str], dtype: str, at: Index, dim: int, runs: int, width: int, down: bool, line: int
) -> list[Expr]:
    """Return value and position at ``at`` of the merge of two neighbouring runs; equal elements of the first run come
    first.

    Of the elements before the k-th, those of the first run are counted by bisection: it has at least ``i`` of them if
    its ``i``-th precedes the second run's ``k - i``-th (after the one on a diagonal: Odeh, Green, Mwassi, Shmueli,
    Birk: Merge Path, 2012).
    """
    pair, k = b.position(at[dim]), b.position(at[dim + 1])
    first = Op("mul", (pair, Num(2, "int64")), "int64")
    is_single = Op("eq", (first, Num(runs - 1, "int64")), "bool")
    second = Op("add", (first, Num(1, "int64")), "int64")
    most: Expr = Num(width, "int64")
    if runs % 2:
        second = Op("min", (second, Num(runs - 1, "int64")), "int64")
        of_second: Expr = Op("where", (is_single, Num(0, "int64"), most), "int64")
    else:
        of_second = most

    def read(which: int, run: Expr, place: Expr) -> Expr:
        dtype_read = "int32" if which else dtype
        inside = Op("max", (Op("min", (place, Num(width - 1, "int64")), "int64"), Num(0, "int64")), "int64")
        return Leaf(kept[which], (*at[:dim], chosen(run), chosen(inside), *at[dim + 2 :]), dtype_read)

    def goes_first(i: Expr, j: Expr) -> Expr:
        x, y = compute(read(0, first, i), wide(dtype)), compute(read(0, second, j), wide(dtype))
        sooner = Op("ge" if down else "le", (x, y), "bool", line)
        return (
            sooner
            if not is_float(dtype)
            else Op("logical_or", (sooner, Op("isnan", (x if down else y,), "bool")), "bool")
        )

    def less(x: Expr, y: Expr) -> Expr:
        return Op("sub", (x, y), "int64")

    first_count: Expr = Op("max", (less(k, of_second), Num(0, "int64")), "int64")
    limit = Op("min", (k, most), "int64")
    for bit in reversed(range(width.bit_length())):
        ahead = Op("add", (first_count, Num(1 << bit, "int64")), "int64", line)
        takes = goes_first(less(ahead, Num(1, "int64")), less(k, ahead))
        takes = Op("logical_and", (Op("le", (ahead, limit), "bool"), takes), "bool")
        first_count = Op("where", (takes, ahead, first_count), "int64", line)
    second_count = less(k, first_count)
    from_first = Op(
        "logical_and", (Op("lt", (first_count, most), "bool"), goes_first(first_count, second_count)), "bool"
    )
    from_first = Op("logical_or", (Op("ge", (second_count, of_second), "bool"), from_first), "bool")
    pairs = ((read(n, first, first_count), read(n, second, second_count)) for n in range(len(kept)))
    merged: list[Expr] = [Op("where", (from_first, x, y), x.dtype, line) for x, y in pairs]
    if runs % 2:
        # a run without a neighbour is padded
        beyond = Op("logical_and", (is_single, Op("ge", (k, most), "bool")), "bool")
        merged[0] = Op("where", (beyond, _last_of_all(dtype, down), merged[0]), dtype, line)
    return merged


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
    return _order(b, node, index, item or 0, dim, None, bool(down))


def _topk(b: Builder, node: Node, index: Index, item: int) -> Expr:
    count = node.args[1]
    dim = node.args[2] if len(node.args) > 2 else node.keyword("dim", -1)
    down = node.args[3] if len(node.args) > 3 else node.keyword("largest", True)
    if not isinstance(count, int):
        raise b.refuse(node, "a number of elements that is not fixed")
    return _order(b, node, index, item or 0, dim, count, bool(down))


ORDERS: dict[str, Handler] = {"sort": _sort, "topk": _topk}
