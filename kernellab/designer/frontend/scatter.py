"""Writes at indices that are values: one launch fills the tensor, a second one writes or adds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from kernellab.capture import Node, Ref
from kernellab.capture.graph import Extent
from kernellab.designer.frontend.build import Builder, Handler, Stored
from kernellab.designer.frontend.gather import chosen, indices, picked, places
from kernellab.designer.frontend.products import rounded
from kernellab.designer.frontend.reductions import argument, reduced
from kernellab.designer.ir import extents
from kernellab.designer.ir.arithmetic import cast, compute, is_float, wide
from kernellab.designer.ir.axes import Axis, Index, Ix
from kernellab.designer.ir.dtypes import HALVES
from kernellab.designer.ir.expr import Dot, Expr, Iota, Leaf, Num, Op, Red, walk
from kernellab.designer.ir.normal import ADD, EACH, ONCE, Output, number
from kernellab.sketch.program.ints import WIDE_ELEMENTS

#: rows of a group's block
_BLOCK = 128

#: minimum length of a chain of dependent reads for which an index is stored
_CHAIN = 4


def _put(b: Builder, node: Node, at: Index, value: Expr, mode: str) -> str:
    """Return the temporary tensor with ``value`` written at ``at``, after the node's first operand; created once."""
    base, dtype = node.args[0], node.dtype
    key = (node.name, "put")
    if key in b.stored_names:
        return b.stored_names[key]
    index = b.axes_for(node.shape)
    filling = cast(b.value(base, index), dtype)
    name = b.store(key, index, filling, node.shape)
    if mode == ADD and isinstance(filling, Num) and filling.value == 0:
        # a tensor that is only added to starts at 0
        b.cuts.pop()
    ats = tuple(ix.at for ix in at if ix.at is not None)
    packed = Op("put", (cast(value, dtype), *ats), dtype, node.line)
    b.cuts.append(Stored(name, at, packed, node.shape, put=mode))
    return name


def _source(b: Builder, node: Node, value: Any, index: Index, shape: tuple[Extent, ...]) -> Expr:
    return compute(b.operand(value, index, shape), wide(node.dtype))


def _scatter(mode: str) -> Handler:
    def handle(b: Builder, node: Node, index: Index, item: int) -> Expr:
        dim, ids, value = node.args[1] % len(index), node.args[2], node.args[3]
        reduce = argument(node, 4, "reduce")
        d, base = wide(node.dtype), b.value(node.args[0], index)
        if b.shape(ids)[dim] == 1 and isinstance(base, Num) and reduce is None and _covers(b, node, dim):
            # one index per row of a constant: the pass that reads an element also finds whether it is indexed
            row = (*index[:dim], Ix(), *index[dim + 1 :])
            here = Op("eq", (compute(picked(b, ids, row), "int64"), b.position(index[dim])), "bool")
            new = compute(picked(b, value, row) if b.shape(value) else b.value(value), d)
            new = Op("add", (new, base), d, node.line) if mode == ADD and base.value else new
            return Op("where", (here, new, compute(base, d)), d, node.line)
        if mode == ONCE and (b.options.repeated_writes or reduce == "multiply"):
            return _found(b, node, index, dim, multiplies=reduce == "multiply")
        put = ADD if reduce == "add" else mode
        shape = b.shape(ids)
        source_index = b.axes_for(shape)
        at = (*source_index[:dim], _named(b.value(ids, source_index)), *source_index[dim + 1 :])
        # the source may be larger than the indices
        source = b.value(value, source_index if b.shape(value) else ())
        return Leaf(_put(b, node, at, source, put), index, node.dtype)

    return handle


def _covers(b: Builder, node: Node, dim: int) -> bool:
    """Return whether there is an index for each row."""
    shape = b.shape(node.args[2])
    return all(at == dim or extents.same(n, node.shape[at]) for at, n in enumerate(shape))


def _found(b: Builder, node: Node, index: Index, dim: int, multiplies: bool) -> Expr:
    """Return the result of a scatter at a place that may be indexed several times, computed from the place: the last
    element written there, or the product of all of them. For each place every index is tested."""
    base, ids, value = node.args[0], node.args[2], node.args[3]
    shape = b.shape(ids)
    each = b.axes_for((shape[dim],), frozenset(leaf for ix in index for leaf in ix.within()))[0]
    row, outside = [*index], list[Expr]()
    row[dim] = each
    for at, n in enumerate(shape):
        if at != dim and not extents.same(n, node.shape[at]):
            # fewer rows of indices than of elements: elements beyond keep their value
            outside.append(Op("ge", (b.position(index[at]), number(n)), "bool"))
            row[at] = chosen(Op("min", (b.position(index[at]), number(extents.add(n, -1))), "int64"))
    here: Expr = Op("eq", (compute(picked(b, ids, tuple(row)), "int64"), b.position(index[dim])), "bool")
    for beyond in outside:
        here = Op("logical_and", (here, Op("logical_not", (beyond,), "bool")), "bool")
    d = wide(node.dtype)
    old = compute(b.value(base, index), d)
    if multiplies:
        factor_value = compute(picked(b, value, tuple(row)) if b.shape(value) else b.value(value), d)
        factor = Op("where", (here, factor_value, Num(1.0 if is_float(d) else 1, d)), d)
        return Op("mul", (old, reduced("prod", factor, each.leaves(), d, node)), d, node.line)
    places = Op("where", (here, b.position(each), Num(-1, "int64")), "int64")
    last = reduced("max", places, each.leaves(), "int64", node)
    there = chosen(Op("max", (last, Num(0, "int64")), "int64"))
    new = picked(b, value, (*row[:dim], there, *row[dim + 1 :])) if b.shape(value) else b.value(value)
    is_indexed = Op("ge", (last, Num(0, "int64")), "bool")
    return Op("where", (is_indexed, compute(new, d), old), d, node.line)


def _index_put(b: Builder, node: Node, index: Index, item: int) -> Expr:
    shape = b.shape(node.args[0])
    ids_by_dim = (*node.args[1], *(None,) * (len(shape) - len(node.args[1])))
    for ids in ids_by_dim:
        if isinstance(ids, Ref) and _is_looked_for(b, ids):
            b.stop(ids)
    dims, ids_shape = places(b, node, ids_by_dim, shape)
    adjacent = dims == list(range(dims[0], dims[-1] + 1))
    first = dims[0] if adjacent else 0
    rest = [e for d, e in enumerate(shape) if d not in dims]
    result = (*rest[:first], *ids_shape, *rest[first:])
    source_index = b.axes_for(result)
    at = tuple(
        _named(b.position(ix)) if d in dims else ix
        for d, ix in enumerate(indices(b, node, ids_by_dim, shape, source_index))
    )
    adds = bool(node.args[3]) if len(node.args) > 3 else bool(node.keyword("accumulate", False))
    value = _source(b, node, node.args[2], source_index, result)
    return Leaf(_put(b, node, at, value, ADD if adds else ONCE), index, node.dtype)


def _is_looked_for(b: Builder, ids: Ref) -> bool:
    """Return whether an index is found by several dependent reads (such as a position in a sorted tensor). Such indices
    are stored: a launch that writes rows would otherwise search for each row's place, once for each part of a row."""
    if b.is_stored(ids):
        return False
    # on axes of no other value, which would otherwise be kept unchanged
    exprs = walk(b.value(ids, tuple(Ix() if e == 1 else Ix((Axis(e),)) for e in b.shape(ids))))
    return sum(isinstance(e, Leaf) and bool(e.operands) for e in exprs) >= _CHAIN


def _named(value: Expr) -> Ix:
    """Return the index for ``value``; a position becomes a value too, since a slice would not show where its axis
    ends."""
    return Ix((), int(value.value)) if isinstance(value, Num) else Ix((), 0, 1, None, value)


# -- products of groups of rows: a block of rows has one matrix -------------------------------------------------------


def _int(op: str, *args: Expr | int, dtype: str = "int64") -> Expr:
    return Op(op, tuple(Num(a, "int64") if isinstance(a, int) else a for a in args), dtype)


def _holds(op: str, *args: Expr | int) -> Expr:
    return _int(op, *args, dtype="bool")


class _Groups:
    """The groups of one product, and the tables that map blocks to rows."""

    def __init__(self, b: Builder, node: Node, offs: Ref) -> None:
        self.b, self.node, self.offs = b, node, offs
        rows, count = b.shape(node.args[0])[0], b.shape(node.args[1])[0]
        if not isinstance(rows, int) or not isinstance(count, int):
            raise b.refuse(node, "grouped products want a fixed number of rows, and these lie along a Dim")
        self.rows, self.count = rows, count
        #: each group uses whole blocks
        self.blocks = self.rows // _BLOCK + self.count
        self.block, self.inside, self.each = Axis(self.blocks), Axis(_BLOCK), Axis(self.count)

    def end(self, group: Expr) -> Expr:
        """Return the end of a group's rows; the last group has all remaining rows."""
        end = cast(picked(self.b, self.offs, (chosen(group),)), "int64")
        return _int("where", _holds("lt", group, self.count - 1), end, self.rows)

    def _before(self, group: Expr, ends: Expr) -> Expr:
        """Return the end of the previous group; 0 for the first."""
        return _int("where", _holds("gt", group, 0), ends, 0)

    def start(self, group: Expr) -> Expr:
        return self._before(group, self.end(_int("max", _int("sub", group, 1), 0)))

    def _last(self) -> str:
        """Return the table of cumulative block counts, through each group's last block."""
        group, each = Axis(self.count), Axis(self.count)
        here = Iota(Ix((each,)))
        size = _int("sub", self.end(here), self.start(here))
        block_count = _int("floordiv", _int("add", size, _BLOCK - 1), _BLOCK)
        upto = _int("where", _holds("le", here, Iota(Ix((group,)))), block_count, 0)
        return self._table("last_block", group, Red("sum", upto, (each,), "int64"))

    def _table(self, name: str, axis: Axis, value: Expr, joins: bool = False) -> str:
        return self.b.kept(f"{self.node.name.strip('_')}_{name}", (Ix((axis,)),), value, (axis.extent,), joins)  # type: ignore[arg-type]

    def first(self, group: Expr) -> Expr:
        """Return the group's first block."""
        before = chosen(_int("max", _int("sub", group, 1), 0))
        return self._before(group, Leaf(self._last(), (before,), "int64"))

    def owner(self, at: Expr, ends: Expr, each: Axis) -> Expr:
        """Return the group that contains ``at``, for groups that end at ``ends`` along ``each``."""
        before = Red("sum", cast(_holds("ge", at, ends), "int64"), (each,), "int64")
        return _int("min", before, self.count - 1)

    def _owner_of_block(self) -> tuple[Expr, Expr]:
        block = Iota(Ix((self.block,)))
        return block, self.owner(block, Leaf(self._last(), (Ix((self.each,)),), "int64"), self.each)

    def of_block(self) -> tuple[Expr, Expr]:
        """Return a block's group and first row."""
        block, group = self._owner_of_block()
        row = _int("add", self.start(group), _int("mul", _int("sub", block, self.first(group)), _BLOCK))
        here = (Ix((self.block,)),)
        names = (
            self._table("owner", self.block, group),
            self._table("row", self.block, row, joins=True),
        )
        group, row = (Leaf(name, here, "int64") for name in names)
        return group, row

    def stop_of_block(self) -> Expr:
        """Return the end of the rows of a block's group; the table is made by the launch of :meth:`of_block`."""
        _, group = self._owner_of_block()
        return Leaf(self._table("stop", self.block, self.end(group), joins=True), (Ix((self.block,)),), "int64")

    def of_row(self, row: Ix) -> tuple[Expr, Expr]:
        """Return the block that contains a row, and the row's position in it."""
        all_rows, each = Axis(self.rows), Axis(self.count)
        ends = cast(picked(self.b, self.offs, (Ix((each,)),)), "int64")
        group = self.owner(Iota(Ix((all_rows,))), ends, each)
        place = _int("sub", _int("mul", self.first(group), _BLOCK), self.start(group))
        table = self._table("moved", all_rows, place)
        at = _int("add", Leaf(table, (row,), "int64"), self.b.position(row))
        return _int("floordiv", at, _BLOCK), _int("mod", at, _BLOCK)


def _grouped(b: Builder, node: Node, index: Index, item: int) -> Expr:
    """Multiply blocks of rows where they lie, or copy rows into blocks and back.

    Where every warp loads and multiplies, a product that reads and writes rows in place takes 0.204 ms on an H200, with
    both copies 0.176 (8192 x 2048, 16 matrices of 1536 columns). By the copy engine rows in place take 0.243, with
    copies 0.309 (8192 x 2048, 8 matrices of 4096 columns)."""
    left, right, offs = node.args[0], node.args[1], argument(node, 2, "offs")
    if not isinstance(offs, Ref) or len(b.shape(left)) != 2 or len(b.shape(right)) != 3:
        raise b.refuse(node, "groups of another form than rows and their ends")
    groups, key = _Groups(b, node, offs), (node.name, "blocks")
    if _is_for_copy_engine(b, left, right, node):
        return Leaf(_in_place(b, node, groups), index, node.dtype)
    if key not in b.stored_names:
        summed, columns = Axis(b.shape(left)[1]), Axis(node.shape[1])
        block, inside, over = Ix((groups.block,)), Ix((groups.inside,)), Ix((summed,))
        group, first = groups.of_block()
        row = chosen(_int("min", _int("add", first, Iota(inside)), groups.rows - 1))
        rows_index, shape = (block, inside, over), (groups.blocks, _BLOCK, b.shape(left)[1])
        rows = Leaf(
            b.store((node.name, "rows"), rows_index, picked(b, left, (row, over)), shape), rows_index, b.dtype(left)
        )
        matrix = picked(b, right, (chosen(group), over, Ix((columns,))))
        dot = Dot(rows, rounded(matrix, b.dtype(right)), summed, wide(node.dtype), node.line)
        b.store(key, (block, inside, Ix((columns,))), cast(dot, node.dtype), (groups.blocks, _BLOCK, node.shape[1]))
    block_of, place = groups.of_row(index[0])
    return Leaf(b.stored_names[key], (chosen(block_of), chosen(place), index[1]), node.dtype)


def _is_for_copy_engine(b: Builder, left: Ref, right: Ref, node: Node) -> bool:
    """Return whether a copy engine reads the product's rows and its stored matrices, and its tiles are not larger than
    the product. Its places have 32 bits."""
    summed, columns = b.shape(left)[1], node.shape[1]
    if not b.options.copy_engine or not isinstance(summed, int) or not isinstance(columns, int):
        return False
    whole = summed % 8 == columns % 8 == 0 and summed >= 64 and columns >= _BLOCK
    matrices = b.shape(right)
    is_read = isinstance(b.value(right, b.axes_for(matrices)), Leaf)
    is_near = all(_is_below(shape, WIDE_ELEMENTS) for shape in (b.shape(left), matrices, node.shape))
    return whole and is_read and is_near and {b.dtype(left), node.dtype} <= set(HALVES)


def _is_below(shape: Sequence[Extent], most: int) -> bool:
    """Return whether a tensor of known sizes has fewer elements; sizes that are open are left to the lowering."""
    return math.prod(extent for extent in shape if isinstance(extent, int)) < most


def _in_place(b: Builder, node: Node, groups: _Groups) -> str:
    """Return the tensor of the product: a block's rows begin at an offset that a table has, and those past its group's
    end are not written."""
    left, right = node.args[0], node.args[1]
    key, shape = (node.name, "rows"), (groups.rows, node.shape[1])
    if key in b.stored_names:
        return b.stored_names[key]
    if not b.is_stored(left):
        b.stop(left)
    summed, columns = Axis(b.shape(left)[1]), Axis(node.shape[1])
    inside, over, column = Ix((groups.inside,)), Ix((summed,)), Ix((columns,))
    group, first = groups.of_block()
    stop = groups.stop_of_block()
    row = _int("add", first, Iota(inside))
    rows = picked(b, left, (chosen(row), over))
    matrix = picked(b, right, (chosen(group), over, column))
    dot = Dot(rounded(rows, b.dtype(left)), rounded(matrix, b.dtype(right)), summed, wide(node.dtype), node.line)
    at = _int("where", _holds("lt", row, stop), row, -1)
    name = b.store(key, (), dot, shape)
    packed = Op("put", (cast(dot, node.dtype), at), node.dtype, node.line)
    b.cuts[-1] = Stored(name, (_named(at), column), packed, shape, put=EACH)
    return name


PUTS: dict[str, Handler] = {
    "scatter_add": _scatter(ADD), "scatter": _scatter(ONCE), "index_put": _index_put, "_unsafe_index_put": _index_put,
    "_grouped_mm": _grouped,
}  # fmt: skip


def written_in_place(b: Builder, outputs: list[Output]) -> list[Output]:
    """Remove ``outputs`` that another launch can write directly to the output's own tensor."""
    cuts_by_name = {c.name: c for c in b.cuts}
    remaining = []
    for o in outputs:
        cut = cuts_by_name.get(o.expr.tensor) if isinstance(o.expr, Leaf) and o.expr.index == o.index else None
        if cut is None or (cut.dtype or cut.value.dtype, cut.shape) != (o.dtype, _shape(o)):
            remaining.append(o)
            continue
        name = cut.name
        roots = [p.expr for p in outputs if p is not o] + [c.value for c in b.cuts]
        if any(isinstance(e, Leaf) and e.tensor == name for root in roots for e in walk(root)):
            remaining.append(o)
            continue
        b.cuts[:] = [replace(c, name=o.tensor, purpose=o.purpose) if c.name == name else c for c in b.cuts]
    return remaining


def _shape(o: Output) -> tuple[Extent, ...]:
    return tuple(ix.extent for ix in o.index)
