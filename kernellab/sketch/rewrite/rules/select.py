"""Selects the first few elements of a row by comparisons: a pass for the largest, one for its index, and so on.

A sort of the row is needed only for a selection of many. For one to four, each pass over the row is a plain reduction.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from kernellab.sketch.program.program import Tile
from kernellab.sketch.rewrite import edit
from kernellab.sketch.rewrite.ranks import argument
from kernellab.sketch.rewrite.record import Change, Setting
from kernellab.sketch.rewrite.rules.apart import tiles
from kernellab.sketch.rewrite.rules.inter_kernel import written_out
from kernellab.sketch.syntax import tree
from kernellab.sketch.syntax.walk import statements

#: most elements that are selected so; chosen, not measured
_MOST_SELECTED = 4
_LOWEST = tree.Num(-float("inf"), "-inf")
_FLOATS = frozenset(("f16", "bf16", "f32", "f64"))


def select(setting: Setting) -> Iterator[Change]:
    """Replace ``values, places = topk(x, k)`` by k maxima, each with its first index.

    NaN is the largest, and of equal elements the first comes first, as in ``topk``; selected elements are excluded by
    index, so that a row of -inf gives its first indices in order."""
    for number, sketch in edit.launches(setting.tree):
        by_name, used = tiles(setting, number), edit.used_names(setting.tree)
        for stmt in statements(sketch.body):
            if isinstance(stmt, tree.Assign) and (selected := _selected(stmt, by_name, used)) is not None:
                body = _instead(sketch.body, stmt, selected)
                why = f"finds the first {_count(stmt)} of a row in {sketch.name} one after another"
                yield edit.with_launch(setting.tree, number, replace(sketch, body=body)), why


def _instead(body: edit.Body, old: tree.Stmt, new: list[tree.Stmt]) -> edit.Body:
    """Return ``body`` with ``new`` in place of ``old``, also within loops."""
    statements: list[tree.Stmt] = []
    for stmt in body:
        if isinstance(stmt, tree.For):
            stmt = replace(stmt, body=_instead(stmt.body, old, new))
        statements += new if stmt is old else [stmt]
    return tuple(statements)


def _count(stmt: tree.Assign) -> int:
    """Return the number of elements of a ``topk``; 0 if that is not a number, or for another call."""
    call = stmt.value
    if not isinstance(call, tree.Call) or call.func != "topk" or len(call.args) < 2:
        return 0
    return edit.value_of(call.args[1], {}) or 0


def _selected(stmt: tree.Assign, by_name: dict[str, Tile], used: set[str]) -> list[tree.Stmt] | None:
    """Return the statements that replace a ``topk``; None if ``stmt`` is another one, or cannot be replaced."""
    count, call = _count(stmt), stmt.value
    if not 1 <= count <= _MOST_SELECTED or not isinstance(call, tree.Call) or len(stmt.targets) != 2 or stmt.pinned:
        return None
    row = call.args[0]
    tile = by_name.get(row.id) if isinstance(row, tree.Name) else None
    axis, largest = argument(call, 2, "axis"), argument(call, 3, "largest")
    if tile is None or tile.rank not in (1, 2) or tile.dtype.value not in _FLOATS:
        return None
    if largest is not None and largest != tree.Bool(True):
        return None
    if axis is None or edit.value_of(axis, {}) != tile.rank - 1:
        return None
    passes = _Passes(tile.rank == 2, written_out(tile.shape[-1]), used)
    return [*passes.of_row(row, count), *passes.results(stmt.targets)]


@dataclass
class _Passes:
    """Writes the passes of one selection. ``has_rows``: the tile has rank 2; ``extent``: the length of a row; ``used``:
    the names that exist."""

    has_rows: bool
    extent: tree.Expr
    used: set[str]

    #: the values and the indices of the elements that are selected so far
    values: list[tree.Name] = field(default_factory=list)
    indices: list[tree.Name] = field(default_factory=list)

    def of_row(self, row: tree.Expr, count: int) -> Iterator[tree.Stmt]:
        """Yield the passes over ``row``: for each of ``count`` elements its value, then its first index."""
        axis = (tree.Keyword("axis", edit.number(int(self.has_rows))),)
        # written at each use: a named tile would be stored between two passes
        column = tree.Call("cast", (tree.Call("arange", (self.extent,)), tree.Name("i32")))
        for _ in range(count):
            best, place = self._name("best"), self._name("place")
            unselected = [tree.Binary("!=", column, self._as_column(index)) for index in self.indices]
            remaining = tree.Call("where", (_all(unselected), row, _LOWEST)) if unselected else row
            yield tree.Assign((best,), tree.Call("reduce_max", (remaining,), axis))
            is_best = tree.Call(
                "logical_or", (tree.Binary("==", row, self._as_column(best)), tree.Call("isnan", (row,)))
            )  # fmt: skip
            candidates = tree.Call("where", (_all([*unselected, is_best]), column, self.extent))
            yield tree.Assign((place,), tree.Call("reduce_min", (candidates,), axis))
            self.values.append(best)
            self.indices.append(place)

    def results(self, targets: tuple[tree.Name, ...]) -> Iterator[tree.Stmt]:
        """Yield the values and the indices as the tiles of ``topk``."""
        slot = self._name("slot")
        yield tree.Assign((slot,), tree.Call("arange", (edit.number(len(self.values)),)))
        values, indices = targets
        yield tree.Assign((values,), self._in_slots(slot, self.values))
        yield tree.Assign((indices,), tree.Call("cast", (self._in_slots(slot, self.indices), tree.Name("i64"))))

    def _in_slots(self, slot: tree.Name, numbers: list[tree.Name]) -> tree.Expr:
        """Return a row with the first of ``numbers`` in slot 0, the second in slot 1, and so on."""
        row = self._as_column(numbers[-1])
        for n in reversed(range(len(numbers) - 1)):
            is_here = tree.Binary("<", slot, edit.number(n + 1))
            row = tree.Call("where", (is_here, self._as_column(numbers[n]), row))
        return row

    def _name(self, word: str) -> tree.Name:
        return tree.Name(edit.fresh(word, self.used))

    def _as_column(self, name: tree.Name) -> tree.Expr:
        """Return a number a row as a column, which broadcasts along the row."""
        return tree.Subscript(name.id, (tree.Slice(), tree.NewAxis())) if self.has_rows else name


def _all(conditions: Sequence[tree.Expr]) -> tree.Expr:
    joined, *others = conditions
    for other in others:
        joined = tree.Call("logical_and", (joined, other))
    return joined
