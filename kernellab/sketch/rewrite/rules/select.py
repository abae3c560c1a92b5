"""Selects the first few elements of a row by comparisons: a pass for the largest, one for its index, and so on.

A sort of the row is needed only for a selection of many. For one to four, each pass over the row is a plain reduction.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from kernellab.sketch.program.program import Tile
from kernellab.sketch.rewrite import edit
from kernellab.sketch.rewrite.ranks import argument
from kernellab.sketch.rewrite.record import Change, Setting
from kernellab.sketch.rewrite.rules.apart import tiles
from kernellab.sketch.rewrite.rules.inter_kernel import written_out
from kernellab.sketch.syntax import tree
from kernellab.sketch.syntax.walk import statements

#: most elements that are selected so
_MOST = 4
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
                yield (
                    edit.with_launch(setting.tree, number, replace(sketch, body=body)),
                    f"finds the first {_count(stmt)} of a row in {sketch.name} one after another",
                )


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
    if not 1 <= count <= _MOST or not isinstance(call, tree.Call) or len(stmt.targets) != 2 or stmt.pinned:
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
    return [*passes.of_row(row, count), *passes.joined(stmt.targets)]


@dataclass
class _Passes:
    """Writes the passes of one selection. ``wide``: the tile has rows; ``extent``: the length of a row; ``taken``: the
    names that exist."""

    wide: bool
    extent: tree.Expr
    taken: set[str]

    def __post_init__(self) -> None:
        #: the values and the indices of the elements that are selected so far
        self.best: list[tree.Name] = []
        self.place: list[tree.Name] = []

    def of_row(self, row: tree.Expr, count: int) -> Iterator[tree.Stmt]:
        """Yield the passes over ``row``: for each of ``count`` elements its value, then its first index."""
        axis = (tree.Keyword("axis", edit.number(int(self.wide))),)
        # written at each use: a named tile would be stored between two passes
        column = tree.Call("cast", (tree.Call("arange", (self.extent,)), tree.Name("i32")))
        for _ in range(count):
            best, place = self._name("best"), self._name("place")
            free = [tree.Binary("!=", column, self._along(before)) for before in self.place]
            remaining = tree.Call("where", (_all(free), row, _LOWEST)) if free else row
            yield tree.Assign((best,), tree.Call("reduce_max", (remaining,), axis))
            is_best = tree.Call(
                "logical_or", (tree.Binary("==", row, self._along(best)), tree.Call("isnan", (row,)))
            )  # fmt: skip
            where = tree.Call("where", (_all([*free, is_best]), column, self.extent))
            yield tree.Assign((place,), tree.Call("reduce_min", (where,), axis))
            self.best.append(best)
            self.place.append(place)

    def joined(self, targets: tuple[tree.Name, ...]) -> Iterator[tree.Stmt]:
        """Yield the values and the indices as the tiles of ``topk``."""
        slot = self._name("slot")
        yield tree.Assign((slot,), tree.Call("arange", (edit.number(len(self.best)),)))
        for target, source, cast in zip(targets, (self.best, self.place), (False, True), strict=True):
            joined = self._along(source[-1])
            for n in reversed(range(len(source) - 1)):
                is_here = tree.Binary("<", slot, edit.number(n + 1))
                joined = tree.Call("where", (is_here, self._along(source[n]), joined))
            yield tree.Assign((target,), tree.Call("cast", (joined, tree.Name("i64"))) if cast else joined)

    def _name(self, word: str) -> tree.Name:
        return tree.Name(edit.fresh(word, self.taken))

    def _along(self, name: tree.Name) -> tree.Expr:
        """A number a row, for each of its columns; columns are the last axis anyway."""
        return tree.Subscript(name.id, (tree.Slice(), tree.NewAxis())) if self.wide else name


def _all(conditions: Sequence[tree.Expr]) -> tree.Expr:
    joined, *others = conditions
    for other in others:
        joined = tree.Call("logical_and", (joined, other))
    return joined
