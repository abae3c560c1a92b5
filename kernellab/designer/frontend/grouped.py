"""Products of the rows of groups, each with its own matrix: blocks of rows that have one matrix are products."""

from __future__ import annotations

from kernellab.capture import Node, Ref
from kernellab.designer.frontend import pointwise as aten
from kernellab.designer.frontend.build import Builder, Handler, Stored
from kernellab.designer.frontend.gather import chosen, picked
from kernellab.designer.frontend.products import rounded
from kernellab.designer.frontend.reductions import argument
from kernellab.designer.ir.expr import Axis, Dot, Expr, Index, Iota, Ix, Leaf, Num, Op, Red
from kernellab.designer.ir.normal import EACH, Purpose

#: rows of a block
_BLOCK = 128


def _int(op: str, *args: Expr | int) -> Expr:
    """Integer arithmetic, comparisons of integers, and a choice between them."""
    dtype = "bool" if op in ("ge", "gt", "lt", "le") else "int64"
    return Op(op, tuple(Num(a, "int64") if isinstance(a, int) else a for a in args), dtype)


class _Groups:
    """The groups of one product, and the tables that say which rows each block has."""

    def __init__(self, b: Builder, node: Node, offs: Ref) -> None:
        self.b, self.node, self.offs = b, node, offs
        rows, count = b.shape(node.args[0])[0], b.shape(node.args[1])[0]
        assert isinstance(rows, int) and isinstance(count, int)
        self.rows, self.count = rows, count
        #: each group takes whole blocks
        self.blocks = self.rows // _BLOCK + self.count
        self.block, self.inside = Axis(self.blocks), Axis(_BLOCK)

    def end(self, group: Expr) -> Expr:
        """Where a group's rows end; the last one has all that are left."""
        given = aten.cast(picked(self.b, self.offs, (chosen(group),)), "int64")
        return _int("where", _int("lt", group, self.count - 1), given, self.rows)

    def _before(self, group: Expr, ends: Expr) -> Expr:
        """What ends with the group before it: 0 before the first."""
        return _int("where", _int("gt", group, 0), ends, 0)

    def start(self, group: Expr) -> Expr:
        return self._before(group, self.end(_int("max", _int("sub", group, 1), 0)))

    def _last(self) -> str:
        """The table of blocks up to each group's last."""
        group, each = Axis(self.count), Axis(self.count)
        here = Iota(Ix((each,)))
        size = _int("sub", self.end(here), self.start(here))
        taken = _int("floordiv", _int("add", size, _BLOCK - 1), _BLOCK)
        upto = _int("where", _int("le", here, Iota(Ix((group,)))), taken, 0)
        return self._table("last_block", group, Red("sum", upto, (each,), "int64"))

    def _table(self, name: str, axis: Axis, value: Expr, joins: bool = False) -> str:
        return self.b.kept(f"{self.node.name.strip('_')}_{name}", (Ix((axis,)),), value, (axis.extent,), joins)  # type: ignore[arg-type]

    def first(self, group: Expr) -> Expr:
        """The group's first block."""
        before = chosen(_int("max", _int("sub", group, 1), 0))
        return self._before(group, Leaf(self._last(), (before,), "int64"))

    def owner(self, at: Expr, ends: Expr, each: Axis) -> Expr:
        """The group that holds ``at``, of groups that end at ``ends`` along ``each``."""
        before = Red("sum", aten.cast(_int("ge", at, ends), "int64"), (each,), "int64")
        return _int("min", before, self.count - 1)

    def of_block(self) -> tuple[Expr, Expr, Expr]:
        """A block's group, its first row, and where the group's rows end."""
        block, each = Iota(Ix((self.block,))), Axis(self.count)
        group = self.owner(block, Leaf(self._last(), (Ix((each,)),), "int64"), each)
        row = _int("add", self.start(group), _int("mul", _int("sub", block, self.first(group)), _BLOCK))
        here = (Ix((self.block,)),)
        names = (
            self._table("owner", self.block, group),
            self._table("row", self.block, row, joins=True),
            self._table("end", self.block, self.end(group), joins=True),
        )
        group, row, end = (Leaf(name, here, "int64") for name in names)
        return group, row, end

    def of_row(self, row: Ix) -> tuple[Expr, Expr]:
        """The block that has a row, and the row's place in it."""
        own, each = Axis(self.rows), Axis(self.count)
        ends = aten.cast(picked(self.b, self.offs, (Ix((each,)),)), "int64")
        group = self.owner(Iota(Ix((own,))), ends, each)
        place = _int("sub", _int("mul", self.first(group), _BLOCK), self.start(group))
        moved = self._table("moved", own, place)
        at = _int("add", Leaf(moved, (row,), "int64"), self.b.position(row))
        return _int("floordiv", at, _BLOCK), _int("mod", at, _BLOCK)


def _product(b: Builder, node: Node, groups: _Groups, columns: Axis) -> tuple[Expr, Expr, Expr]:
    """The product of a block's rows and its matrix, the row of each, and whether it is one of the group's."""
    left, right = node.args[0], node.args[1]
    summed = Axis(b.shape(left)[1])
    group, first, end = groups.of_block()
    row = _int("add", first, Iota(Ix((groups.inside,))))
    at = _int("min", row, groups.rows - 1)
    value = picked(b, left, (chosen(at), Ix((summed,))))
    if not isinstance(value, Leaf):
        # each block of columns would make it again
        value = Leaf(b.stored(left), (chosen(at), Ix((summed,))), b.dtype(left))
    if not b.narrow:
        key, index = (node.name, "rows"), (Ix((groups.block,)), Ix((groups.inside,)), Ix((summed,)))
        shape = (groups.blocks, _BLOCK, b.shape(left)[1])
        value = Leaf(b.store(key, index, value, shape), index, value.dtype)
    matrix = picked(b, right, (chosen(group), Ix((summed,)), Ix((columns,))))
    factors = (rounded(value, b.dtype(left)), rounded(matrix, b.dtype(right)))
    return Dot(*factors, summed, aten.wide(node.dtype), node.line), row, _int("lt", row, end)


def _grouped(b: Builder, node: Node, index: Index, item: int) -> Expr:
    offs = argument(node, 2, "offs")
    if not isinstance(offs, Ref) or len(b.shape(node.args[0])) != 2 or len(b.shape(node.args[1])) != 3:
        raise b.refuse(node, "groups of another form than rows and their ends")
    groups, columns, key = _Groups(b, node, offs), Axis(node.shape[1]), Ref(node.name)
    if not b.narrow:
        own = (Ix((groups.block,)), Ix((groups.inside,)), Ix((columns,)))
        if key not in b.stored_names:
            dot, _, _ = _product(b, node, groups, columns)
            b.store(key, own, aten.cast(dot, node.dtype), (groups.blocks, _BLOCK, node.shape[1]), Purpose.VALUE)
        block, place = groups.of_row(index[0])
        return Leaf(b.stored_names[key], (chosen(block), chosen(place), index[1]), node.dtype)
    if key not in b.stored_names:
        dot, row, mine = _product(b, node, groups, columns)
        at = _int("where", mine, row, -1)
        name = b.store(key, (), dot, node.shape)
        packed = Op("put", (aten.cast(dot, node.dtype), at), node.dtype, node.line)
        b.cuts[-1] = Stored(name, (Ix((), at=at), Ix((columns,))), packed, node.shape, put=EACH)
    return Leaf(b.stored_names[key], index, node.dtype)


GROUPED: dict[str, Handler] = {"_grouped_mm": _grouped}
