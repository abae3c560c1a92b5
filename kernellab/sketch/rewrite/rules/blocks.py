"""Rows in blocks of a tunable size instead of one tile: one pass for each reduction that depends on an earlier one.

``load(X[i, 0:1024] -> x); s = reduce_sum(x); store(x / s -> Y[i, 0:1024])`` becomes two loops over blocks: the first
adds the blocks' sums up, the second loads each block again and stores its part. The statements of the body are sorted
into passes by their level: the number of reductions, one after another, on which they depend."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from kernellab.operations.sketch import OPS, OpKind
from kernellab.sketch.rewrite import edit
from kernellab.sketch.rewrite.ranks import Unknown, axes_of, keeps, rank_of, ranks
from kernellab.sketch.rewrite.record import Change, Setting
from kernellab.sketch.syntax import tree
from kernellab.sketch.syntax.walk import nodes, written

#: least elements of a block, and most sizes of a block that are offered; chosen, not measured
_LEAST, _MOST = 32, 4


class _Join(NamedTuple):
    """The operation that combines the reductions of two blocks, and its initial value."""

    op: str
    start: float


_JOINS = {
    "reduce_sum": _Join("+", 0.0),
    "reduce_max": _Join("max", -float("inf")),
    "reduce_min": _Join("min", float("inf")),
}


def rows(setting: Setting) -> Iterator[Change]:
    """Replace tiles of a whole row by blocks that divide it, without elements past its end.

    Pointwise work is done for each block; values that a later pass needs are read and computed again."""
    for number, sketch in edit.launches(setting.tree):
        grid = edit.grid(sketch)
        if not grid or any(s.pinned for s in grid[-1].body):
            continue
        for extent in sorted(_extents(grid[-1].body)):
            options = [extent // 2**n for n in range(1, 12) if extent % 2**n == 0 and extent // 2**n >= _LEAST][:_MOST]
            if not options:
                continue
            used = edit.used_names(setting.tree)
            col, block = tree.Name(edit.fresh("col", used)), tree.Name(edit.fresh("ROW_BLOCK", used))
            try:
                body = _Blocking(extent, col, block, ranks(sketch)).body(grid[-1].body)
            except Unknown:
                continue
            blocked = edit.in_grid(sketch, lambda _, body=body: body)  # type: ignore[misc]
            blocked = edit.declare_tunable(blocked, block.id, options)
            why = f"cut the rows of {extent} elements in {sketch.name} into blocks of {block.id}"
            yield edit.with_launch(setting.tree, number, blocked), why


def _extents(body: edit.Body) -> set[int]:
    """Return the numbers that are the whole last slice of a load."""
    extents = set()
    for stmt in body:
        if edit.is_load(stmt) and isinstance(stmt.source, tree.Subscript):
            last = stmt.source.items[-1]
            if isinstance(last, tree.Slice) and isinstance(last.stop, tree.Num) and last.start == edit.number(0):
                extents.add(int(last.stop.value))
    return extents


@dataclass(frozen=True)
class _Step:
    """A statement, whether it works on whole rows (its tile has their length), and the number of passes before it."""

    stmt: tree.Stmt
    is_row: bool
    level: int
    #: for a reduction of a row: how blocks combine
    join: _Join | None = None


@dataclass(frozen=True)
class _Blocking:
    """Writes a body in blocks of ``block`` elements of a row of ``extent``, from ``col`` on."""

    extent: int
    col: tree.Name
    block: tree.Name
    ranks: Mapping[str, int]

    def body(self, body: edit.Body) -> edit.Body:
        """Return ``body`` in blocks. Raises Unknown: something in it cannot be done in blocks."""
        steps = self._steps(body)
        last = max(s.level for s in steps)
        statements: list[tree.Stmt] = []
        for level in range(last + 1):
            statements += [s.stmt for s in steps if not s.is_row and s.join is None and s.level == level]
            sums = [s for s in steps if s.join is not None and s.level == level]
            stores = [s for s in steps if s.is_row and edit.is_store(s.stmt) and level == last]
            if sums or stores:
                statements += [self._start(s) for s in sums]
                inner = (*self._needed(steps, [*sums, *stores]), *(self._joined(s) for s in sums))
                inner = (*inner, *(self._cut(s.stmt) for s in stores))
                span = (edit.number(0), edit.number(self.extent), self.block)
                statements.append(tree.For(self.col.id, span, inner))
        return tuple(statements)

    # -- kinds of statements

    def _steps(self, body: edit.Body) -> list[_Step]:
        rows: set[str] = set()
        level: dict[str, int] = {}
        steps: list[_Step] = []
        stored = {edit.target_tensor(s) for s in body if edit.is_store(s)}
        if any(edit.is_load(s) and edit.uses(s.source) & stored for s in body):
            raise Unknown
        for stmt in body:
            names = written(stmt)
            if any(name in level for name in names) or not isinstance(stmt, (tree.Assign, tree.Move)):
                raise Unknown
            step = self._step(stmt, rows, max((level[n] for n in edit.uses(stmt) if n in level), default=0))
            steps.append(step)
            level.update(dict.fromkeys(names, step.level + (step.join is not None)))
            if step.is_row:
                rows.update(names)
        return steps

    def _step(self, stmt: tree.Stmt, rows: set[str], level: int) -> _Step:
        if isinstance(stmt, tree.Move):
            side = stmt.source if stmt.op == "load" else stmt.dest
            if stmt.op not in ("load", "store") or not isinstance(side, tree.Subscript):
                raise Unknown
            is_row = self._is_row(side)
            stores_row = bool(edit.uses(stmt.source) & rows)
            if stmt.op == "store":
                # a single number may fill a row
                if stores_row != is_row and (stores_row or not self._constant(stmt.source)):
                    raise Unknown
                if is_row:
                    self._check_pointwise(stmt.source, rows)
            return _Step(stmt, is_row, level)
        assert isinstance(stmt, tree.Assign)
        value = stmt.value
        if isinstance(value, tree.Call) and value.func in _JOINS and edit.uses(value.args[0]) & rows:
            rank = rank_of(value.args[0], self.ranks)
            if axes_of(value, rank) != (rank - 1,) or keeps(value) or rank != 1 or len(stmt.targets) != 1:
                raise Unknown
            self._check_pointwise(value.args[0], rows)
            return _Step(stmt, False, level, _JOINS[value.func])
        is_row = bool(edit.uses(value) & rows) or self._has_column_indices(value)
        if is_row:
            self._check_pointwise(value, rows)
        return _Step(stmt, is_row, level)

    def _constant(self, expr: tree.Expr) -> bool:
        return rank_of(expr, self.ranks) == 0

    def _has_column_indices(self, expr: tree.Expr) -> bool:
        """Does ``expr`` contain the indices of a row's elements?"""
        return any(isinstance(n, tree.Call) and n.func == "arange" and self._is_arange(n) for n in nodes(expr))

    def _is_arange(self, call: tree.Call) -> bool:
        return call.args == (edit.number(self.extent),) and not call.keywords

    def _check_pointwise(self, expr: tree.Expr, rows: set[str]) -> None:
        """Raise Unknown unless ``expr`` is elementwise in rows and single values."""
        for node in nodes(expr):
            if isinstance(node, tree.Call) and node.func != "cast" and not self._is_arange(node):
                op = OPS.get(node.func)
                if op is None or op.kind not in (OpKind.POINTWISE, OpKind.COMPARE):
                    raise Unknown
            if isinstance(node, tree.Name) and self.ranks.get(node.id, 0) != (node.id in rows):
                raise Unknown
            if isinstance(node, tree.Subscript):
                raise Unknown

    def _is_row(self, region: tree.Subscript) -> bool:
        slices = [i for i in region.items if isinstance(i, tree.Slice)]
        whole = tree.Slice(edit.number(0), edit.number(self.extent))
        if not slices:
            return False
        if len(slices) > 1 or region.items[-1] != whole:
            raise Unknown
        return True

    # -- one pass

    def _needed(self, steps: list[_Step], ends: list[_Step]) -> list[tree.Stmt]:
        """Return the statements that ``ends`` need, in blocks."""
        names: set[str] = set()
        for step in ends:
            names |= edit.uses(step.stmt.source if isinstance(step.stmt, tree.Move) else step.stmt)
        statements: list[tree.Stmt] = []
        for step in reversed(steps):
            if step.is_row and set(written(step.stmt)) & names:
                names |= edit.uses(step.stmt)
                statements.insert(0, self._cut(step.stmt))
        return statements

    def _cut(self, node: tree.Stmt) -> tree.Stmt:
        part = tree.Slice(self.col, tree.Binary("+", self.col, self.block))
        whole = tree.Slice(edit.number(0), edit.number(self.extent))

        def block(node: object) -> object:
            if isinstance(node, tree.Call) and node.func == "arange" and self._is_arange(node):
                return tree.Binary("+", self.col, tree.Call("arange", (self.block,)))
            if isinstance(node, tree.Subscript) and node.items and node.items[-1] == whole:
                return replace(node, items=(*node.items[:-1], part))
            return None

        return edit.substitute(node, block)

    def _start(self, step: _Step) -> tree.Stmt:
        assert isinstance(step.stmt, tree.Assign) and step.join is not None
        start = step.join.start
        return tree.Assign(step.stmt.targets, tree.Num(start, "" if step.join.op == "+" else str(start)))

    def _joined(self, step: _Step) -> tree.Stmt:
        assert isinstance(step.stmt, tree.Assign)
        (target,) = step.stmt.targets
        cut = self._cut(step.stmt)
        assert isinstance(cut, tree.Assign) and step.join is not None
        pair = (target, cut.value)
        value = tree.Binary("+", *pair) if step.join.op == "+" else tree.Call(step.join.op, pair)
        return replace(cut, value=value)
