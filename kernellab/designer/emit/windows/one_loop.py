"""Taps and blocks of channels of a window as one loop, through which the hardware's pipeline runs without a break."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import gcd

from kernellab.designer.emit.loops import Head, nest
from kernellab.designer.emit.nodes import ZERO, call, extent, let, pipeline, plus, product, times
from kernellab.designer.emit.windows.taps import set_tap, tap_letters, tap_range
from kernellab.designer.emit.writer import Writer
from kernellab.designer.ir.axes import Tap
from kernellab.sketch.syntax.tree import Binary, Expr, Name, Num, Stmt


@dataclass(frozen=True)
class _Taps:
    """The taps of one dimension: their number, the first one, and the distance between them."""

    count: Expr
    start: Expr
    stride: int

    def at(self, position: Expr) -> Expr:
        """Return the tap at index ``position``."""
        return plus(position if self.stride == 1 else times(position, self.stride), self.start)


def one_loop(w: Writer, moving: list[Tap], write_product: Callable[[], None]) -> None:
    """Write a product for every tap of ``moving`` and block of channels; the digits of a counter select them."""
    (c,) = w.k.window.sums
    prefetched = pipeline(w.stages, w.t.product.roles)
    if w.t.window.merged_tap is not None and not moving:
        write_product()
        return
    channel, channels, block = w.tile.variable(c), extent(c.extent), Name(w.t.blocks.get(c, ""))
    if not moving:
        nest(w, [Head(channel, (ZERO, channels, block), (prefetched,))], write_product)
        return
    row, blocks = w.scopes[0].body, call("ceil", channels, block)
    step = w.names.fresh("step")
    taps = {tap: _taps(w, tap, row) for tap in moving}
    assignments: list[Stmt] = []
    # the digits of the step are the taps, outermost first, and the block of channels
    at: Expr = Name(step) if w.t.window.whole_channels else Binary("//", Name(step), blocks)
    for n, tap in enumerate(reversed(moving)):
        count, name = taps[tap].count, w.tile.at_tap[tap]
        assert isinstance(name, Name), name
        digit = at if n == len(moving) - 1 else Binary("%", at, count)
        assignments.append(let(name.id, taps[tap].at(digit)))
        at = Binary("//", at, count)
    total = product([taps[tap].count for tap in moving])
    if w.t.window.whole_channels and w.t.window.merged_tap is None:
        row.append(let(channel, ZERO))
    elif not w.t.window.whole_channels:
        assignments.append(let(channel, times(Binary("%", Name(step), blocks), block)))
        total = times(total, blocks)

    def body() -> None:
        w.body.extend(assignments)
        write_product()

    nest(w, [Head(step, (total,), (prefetched,))], body)


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
