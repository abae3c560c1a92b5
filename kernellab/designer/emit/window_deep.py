"""Neighbouring taps of few channels as the depth of one product.

Tensor cores sum at least 16 elements; a group of a convolution often has 4 or 8 channels. One lane along the sum is a
tap and a channel; both factors are gathered, and read 0 at the lanes past the last tap.
"""

from __future__ import annotations

from collections.abc import Callable

from kernellab.designer.emit.nodes import call, extent, let, move, multiply, plus, product, times
from kernellab.designer.emit.window_loop import set_tap, tap_letters
from kernellab.designer.emit.writer import Item, Writer
from kernellab.designer.frontend.windows import phases
from kernellab.designer.ir.expr import Axis, Ix, Leaf, Tap
from kernellab.sketch.syntax import tree
from kernellab.sketch.syntax.tree import Binary, Expr, Name, Num, Stmt


def neighbours(w: Writer, deep: Tap, positions: tuple[Axis, ...], co: Axis) -> Callable[[str], list[Stmt]]:
    """Name the lanes of a product over the places of ``deep`` and the channels; return what writes one product.

    The result is called in the loop over the other taps, with the name of the sums [positions, channels].
    """
    win, row = w.k.window, w.scopes[0].body
    (c,) = win.sums
    assert isinstance(win.a, Leaf) and isinstance(win.b, Leaf) and phases(deep) == 1 and deep.out is not None

    def named(title: str, value: Expr) -> str:
        name = w.names.fresh(title)
        row.append(let(name, value))
        return name

    lanes = call("arange", Num(w.t.depth))
    tap = named(tap_letters(win).get(deep, "k"), Binary("//", lanes, extent(c.extent)))
    channel = named(w.variable(c), Binary("%", lanes, extent(c.extent)))
    set_tap(w, deep, Name(tap))
    sizes = w.shape(positions)
    at = call("arange", product(sizes))
    within: dict[Axis, Expr] = {}
    for n, axis in enumerate(positions):
        inner = sizes[n + 1 :]
        digit: Expr = Binary("//", at, product(inner)) if inner else at
        within[axis] = Binary("%", digit, sizes[n]) if n else digit

    def along(axis: Axis, step: int) -> Expr:
        """Return the places of the tile's positions along ``axis`` as a column, from the first one."""
        return _column(named(f"{w.variable(axis)}_lanes", within[axis] if step == 1 else times(within[axis], step)))

    # an input lane past the last tap is before the tensor's first element at each position
    start, step = _span(w, next(ix for ix in win.a.index if ix.win is deep))
    before = tree.Unary("-", w.extent(deep.out) if step == 1 else times(w.extent(deep.out), step))
    first = named(
        f"{w.variable(deep.out)}_taps", call("where", Binary("<", Name(tap), Num(deep.kernel)), start, before)
    )
    columns: dict[Axis, Expr] = {}
    across = named(f"{w.variable(deep.out)}_at", Binary("+", along(deep.out, step), Name(first)))
    for ix in win.a.index:
        if c not in ix.leaves() and ix.win is not deep and w.item(ix)[1]:
            (axis,) = w.item(ix)[1]
            columns[axis] = along(axis, _span(w, ix)[1])
    output = named(f"{w.variable(co)}_at", plus(w.vars[co], call("arange", w.extent(co))))

    def places() -> list[Item]:
        items: list[Item] = []
        assert isinstance(win.a, Leaf)
        for ix in win.a.index:
            if c in ix.leaves():
                items.append(Name(channel))
            elif ix.win is deep:
                items.append(Name(across))
            else:
                item, axes = w.item(ix)
                items.append(Binary("+", columns[axes[0]], _span(w, ix)[0]) if axes else item)
        return items

    def weights() -> list[Item]:
        items: list[Item] = []
        assert isinstance(win.b, Leaf)
        for ix in win.b.index:
            leaves = ix.leaves()
            if c in leaves:
                items.append(_column(channel))
            elif deep.k in leaves:
                items.append(_column(tap))
            else:
                items.append(Name(output) if co in leaves else w.item(ix)[0])
        return items

    def write(to: str) -> list[Stmt]:
        assert isinstance(win.a, Leaf) and isinstance(win.b, Leaf)
        x, rows = w.names.fresh(f"{win.a.tensor}_tile"), w.names.fresh(f"{win.b.tensor}_tile")
        return [
            move("gather", tree.Subscript(w.own(win.a.tensor), tuple(places())), Name(x)),
            move("gather", tree.Subscript(w.own(win.b.tensor), tuple(weights())), Name(rows)),
            multiply(Name(x), Name(rows), to),
        ]

    return write


def _column(name: str) -> Expr:
    return tree.Subscript(name, (tree.Slice(), tree.NewAxis()))


def _span(w: Writer, ix: Ix) -> tuple[Expr, int]:
    """Return where the first position of a tile reads along a tiled dimension, and the step between positions."""
    item, _ = w.item(ix)
    assert isinstance(item, tree.Slice) and item.start is not None
    return item.start, int(item.step.value) if isinstance(item.step, Num) else 1
