"""The taps of a window: their names, the current one, and tiles that are loaded at it."""

from __future__ import annotations

from collections.abc import Callable
from math import gcd
from typing import NamedTuple

from kernellab.designer.emit.loops import Head, nest, span_to
from kernellab.designer.emit.nodes import ZERO, Value, extent, let, move, times
from kernellab.designer.emit.writer import Writer
from kernellab.designer.frontend.windows import phases
from kernellab.designer.ir.axes import Axis, Tap
from kernellab.designer.ir.dtypes import DTYPES
from kernellab.designer.ir.expr import Expr, Leaf, Win
from kernellab.sketch.syntax.tree import Binary, Name, Num
from kernellab.sketch.syntax.tree import Expr as Node

#: the dimensions of a window in names, outermost first
_DIMENSIONS = "dhw"


class TapRange(NamedTuple):
    """The first tap that an output reads, and the step between its taps."""

    start: Node
    step: int


def tap_letters(win: Win) -> dict[Tap, str]:
    """Return the variable names of a window's taps: ``kh`` and ``kw`` for two; none for more than three."""
    return dict(zip(win.taps, _letters("k", len(win.taps)), strict=False))


def position_letters(dimensions: int) -> tuple[str, ...]:
    """Return the variable names of a window's output positions: ``oh`` and ``ow`` for two dimensions."""
    return _letters("o", dimensions)


def _letters(prefix: str, dimensions: int) -> tuple[str, ...]:
    names = tuple(prefix + letter for letter in _DIMENSIONS)
    return names[-dimensions:] if 0 < dimensions <= len(names) else ()


def set_tap(w: Writer, tap: Tap, at: Node) -> None:
    """Make ``at`` the current tap for subsequent loads."""
    w.tile.at_tap[tap] = at
    if tap.k is not None:
        w.tile.vars[tap.k] = at


def tap_range(w: Writer, tap: Tap) -> TapRange:
    """Return the taps that an output of the current phase reads.

    A transposed window's taps are the solutions of ``k * dilation = phase + pad (mod stride)``, where the phase is
    ``out % stride``. With ``g`` the common divisor of stride and dilation, there are solutions only if ``g`` divides
    ``phase + pad``; they are then ``stride / g`` apart. If there are none, the first is past the end.
    """
    if phases(tap) == 1:
        return TapRange(ZERO, 1)
    g = gcd(tap.stride, tap.dilation)
    step = tap.stride // g
    reach: Node = Name(w.tile.phases[tap.out].variable) if tap.out in w.tile.phases else ZERO
    reach = Binary("+", reach, Num(tap.pad)) if tap.pad else reach
    # 0 if there are solutions, at least the number of taps otherwise
    past_end = times(Binary("%", reach, Num(g)), tap.kernel)
    if step == 1:
        return TapRange(past_end, 1)
    inverse = pow(tap.dilation // g, -1, step)
    divided = reach if g == 1 else Binary("//", reach, Num(g))
    first = Binary("%", divided if inverse == 1 else times(divided, inverse), Num(step))
    return TapRange(first if g == 1 else Binary("+", first, past_end), step)


def moving_taps(w: Writer) -> list[Tap]:
    """Return the taps with a choice: more than one, or (by phase) one or none."""
    return [tap for tap in w.k.window.taps if tap.kernel > 1 or phases(tap) > 1]


def reads_only_padding(tap: Tap, at: int) -> bool:
    """Return whether the tap ``at`` of a forward-moving window reads only padding, for every output. A wide window over
    a small image has such taps; an access that is out of bounds in every program is refused as an error."""
    if tap.transposed or not isinstance(tap.size, int):
        return False
    first = at * tap.dilation - tap.pad
    if first >= tap.size:
        return True
    outputs = 1 if tap.out is None else tap.out.extent
    return isinstance(outputs, int) and first + (outputs - 1) * tap.stride < 0


def tap_loops(w: Writer, taps: list[Tap], body: Callable[[], None]) -> None:
    """Write loops over ``taps`` and over blocks of the summed channels around the statements of ``body``."""
    win = w.k.window
    letters = tap_letters(win)
    heads: list[Head] = []
    for tap in taps:
        name = w.names.fresh(letters.get(tap, "k"))
        set_tap(w, tap, Name(name))
        start, step = tap_range(w, tap)
        all_taps = step == 1 and start == ZERO
        heads.append(Head(name, (Num(tap.kernel),) if all_taps else (start, Num(tap.kernel), Num(step))))
    heads += [Head(w.tile.variable(a), span_to(extent(a.extent), w.t.blocks.get(a))) for a in win.sums]
    nest(w, heads, body)


def load_at_taps(w: Writer, e: Expr, pad: Node | None = None) -> Value:
    """Load at the current taps; the value is not reused for other taps."""
    assert isinstance(e, Leaf)
    place, loaded = w.tile.place(e.tensor, e.index)
    name = w.names.fresh(f"{e.tensor}_{'tile' if loaded else 'here'}")
    w.body.append(move("load", place, Name(name), pad=pad))
    return Value(Name(name), tuple(loaded))


def with_axes(w: Writer, value: Value, axes: tuple[Axis, ...]) -> Value:
    """Return a named value with its axes in another order."""
    if value.axes == axes:
        return value
    assert isinstance(value.tree, Name), value
    transposed_name = w.names.fresh(f"{value.tree.id}_turned")
    w.body.append(let(transposed_name, w.transposed(value.tree, value.axes, axes)))
    return Value(Name(transposed_name), axes)


def sum_dtype(w: Writer) -> str:
    """Return the sketch's name of the dtype in which a window sums."""
    return DTYPES["float64" if w.k.window.dtype == "float64" else "float32"]
