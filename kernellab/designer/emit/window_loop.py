"""Taps and blocks of channels of a window as one loop, through which the hardware's pipeline runs without a break."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import gcd

from kernellab.designer.emit.loops import Head, nest
from kernellab.designer.emit.nodes import ZERO, call, extent, let, pipeline, plus, product, times
from kernellab.designer.emit.writer import Writer
from kernellab.designer.frontend.windows import phases
from kernellab.designer.ir.expr import Tap, Win
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
