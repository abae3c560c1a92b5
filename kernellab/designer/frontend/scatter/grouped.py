"""Products of groups of rows, each group by its own matrix (``aten._grouped_mm``).

``offs`` has the end of each group's rows; the last group has all that remain. A group takes whole blocks of ``_BLOCK``
rows, so that a block of the launch has one matrix. With ends 100 and 300 and blocks of 128 rows:

    block   group   first row   rows
    0       0       0           0..99 (28 of the block are no rows of the group)
    1       1       100         100..227
    2       1       228         228..299

Tables map blocks to groups and rows (``owner``, ``row``, ``stop``), and rows to blocks (``moved``); each is made once,
by a launch before the product. Where the copy engine reads, a product reads and writes rows where they lie; else rows
are copied into blocks and back.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from kernellab.capture import Node, Ref
from kernellab.capture.graph import Extent
from kernellab.designer.frontend.build import Builder, Handler, Stored
from kernellab.designer.frontend.gather import chosen, picked
from kernellab.designer.frontend.products import rounded
from kernellab.designer.frontend.reductions import argument
from kernellab.designer.frontend.scatter.writes import index_of_value
from kernellab.designer.ir.arithmetic import cast, wide
from kernellab.designer.ir.axes import Axis, Index, Ix
from kernellab.designer.ir.dtypes import HALVES
from kernellab.designer.ir.expr import Dot, Expr, Iota, Leaf, Num, Op, Red
from kernellab.designer.ir.normal import EACH
from kernellab.sketch.program.ints import WIDE_ELEMENTS

#: rows of a group's block
_BLOCK = 128


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
    b.cuts[-1] = Stored(name, (index_of_value(at), column), packed, shape, put=EACH)
    return name


GROUPED: dict[str, Handler] = {"_grouped_mm": _grouped}
