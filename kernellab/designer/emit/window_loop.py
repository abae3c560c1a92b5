"""Taps and blocks of channels of a window as one loop, through which the hardware's pipeline runs without a break."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import gcd

from kernellab.designer.emit.loops import Head, nest
from kernellab.designer.emit.nodes import ZERO, call, extent, let, move, multiply, pipeline, plus, product, times
from kernellab.designer.emit.writer import Item, Writer
from kernellab.designer.frontend.windows import phases
from kernellab.designer.ir.expr import Axis, Ix, Leaf, Tap, Win
from kernellab.sketch.syntax import tree
from kernellab.sketch.syntax.tree import Binary, Expr, Name, Num, Stmt

#: names of the taps of a window, by number of dimensions
_LETTERS = {1: ("kw",), 2: ("kh", "kw"), 3: ("kd", "kh", "kw")}


def tap_letters(win: Win) -> dict[Tap, str]:
    """Return the variable names of a window's taps."""
    return dict(zip(win.taps, _LETTERS.get(len(win.taps), ()), strict=False))


def set_tap(w: Writer, tap: Tap, at: Expr) -> None:
    """Make ``at`` the current tap for subsequent loads."""
    w.at_tap[tap] = at
    if tap.k is not None:
        w.vars[tap.k] = at


def tap_range(w: Writer, tap: Tap) -> tuple[Expr, int]:
    """Return the first tap that an output of the current phase reads, and the step between its taps.

    A transposed window's taps are the solutions of ``k * dilation = phase + pad (mod stride)``, where the phase is
    ``out % stride``; if there are none, the first is past the end.
    """
    if phases(tap) == 1:
        return ZERO, 1
    g = gcd(tap.stride, tap.dilation)
    step = tap.stride // g
    at: Expr = Name(w.phase[tap.out][1]) if tap.out in w.phase else ZERO
    at = Binary("+", at, Num(tap.pad)) if tap.pad else at
    # past the end if no multiple of the dilation reaches the phase
    none = times(Binary("%", at, Num(g)), tap.kernel)
    if step == 1:
        return none, 1
    factor = pow(tap.dilation // g, -1, step)
    inner = at if g == 1 else Binary("//", at, Num(g))
    first = Binary("%", inner if factor == 1 else times(inner, factor), Num(step))
    return first if g == 1 else Binary("+", first, none), step


@dataclass(frozen=True)
class _Taps:
    """The taps of one dimension: their number, the first one, and the distance between them."""

    count: Expr
    start: Expr
    stride: int

    def at(self, position: Expr) -> Expr:
        """Return the tap at index ``position``."""
        return plus(position if self.stride == 1 else times(position, self.stride), self.start)


def one_loop(w: Writer, moving: list[Tap], multiply: Callable[[], None]) -> None:
    """Write ``multiply`` for every tap of ``moving`` and block of channels; the digits of a counter select them."""
    (c,) = w.k.window.sums
    ahead = pipeline(w.stages, w.t.groups, w.t.in_turn)
    if w.t.deep is not None and not moving:
        multiply()
        return
    channel, channels, block = w.variable(c), extent(c.extent), Name(w.t.blocks.get(c, ""))
    if not moving:
        nest(w, [Head(channel, (ZERO, channels, block), (ahead,))], multiply)
        return
    row, blocks = w.scopes[0].body, call("ceil", channels, block)
    step = w.names.fresh("step")
    taps = {tap: _taps(w, tap, row) for tap in moving}
    lets: list[Stmt] = []
    at: Expr = Name(step) if w.t.whole_channels else Binary("//", Name(step), blocks)
    for n, tap in enumerate(reversed(moving)):
        count, name = taps[tap].count, w.at_tap[tap]
        assert isinstance(name, Name), name
        digit = at if n == len(moving) - 1 else Binary("%", at, count)
        lets.append(let(name.id, taps[tap].at(digit)))
        at = Binary("//", at, count)
    total = product([taps[tap].count for tap in moving])
    if w.t.whole_channels and w.t.deep is None:
        row.append(let(channel, ZERO))
    elif not w.t.whole_channels:
        lets.append(let(channel, times(Binary("%", Name(step), blocks), block)))
        total = times(total, blocks)

    def body() -> None:
        w.body.extend(lets)
        multiply()

    nest(w, [Head(step, (total,), (ahead,))], body)


def _taps(w: Writer, tap: Tap, row: list[Stmt]) -> _Taps:
    """Name one dimension's tap; with phases, the first tap and their number are computed before the loop."""
    name = w.names.fresh(tap_letters(w.k.window).get(tap, "k"))
    set_tap(w, tap, Name(name))
    start, stride = tap_range(w, tap)
    if start == ZERO:
        return _Taps(Num(tap.kernel), start, stride)
    first = w.names.fresh(f"{name}_first")
    row.append(let(first, start))
    if tap.kernel % stride == 0 and gcd(tap.stride, tap.dilation) == 1:
        # the same number at each phase
        return _Taps(Num(tap.kernel // stride), Name(first), stride)
    count = w.names.fresh(f"{name}_taps")
    remaining = Binary("-", Num(tap.kernel), Name(first))
    row.append(let(count, call("max", ZERO, call("ceil", remaining, Num(stride)))))
    return _Taps(Name(count), Name(first), stride)


# -- neighbouring taps of few channels as the depth of one product: at a lane past the last tap both factors read 0 ---


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
