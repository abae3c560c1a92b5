"""Taps and blocks of channels of a window as one loop, which the hardware's pipeline runs through without a stop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kernellab.designer.emit.loops import nest
from kernellab.designer.emit.writer import Writer
from kernellab.designer.frontend.windows import tap_range
from kernellab.designer.ir.expr import Tap, Win

#: names of the taps of a window over so many dimensions
_LETTERS = {1: ("kw",), 2: ("kh", "kw"), 3: ("kd", "kh", "kw")}
_HINT = '@llm_hint("pipeline", num_stages)'


def tap_letters(win: Win) -> dict[Tap, str]:
    """What the variables of a window's taps are called."""
    return dict(zip(win.taps, _LETTERS.get(len(win.taps), ()), strict=False))


def set_tap(w: Writer, tap: Tap, text: str) -> None:
    """``text`` is the tap that loads look at from here on."""
    w.at_tap[tap] = text
    if tap.k is not None:
        w.vars[tap.k] = text


@dataclass(frozen=True)
class _Taps:
    """The taps of one dimension: how many, from which on, and how far apart."""

    count: str
    start: str
    stride: int

    def at(self, position: str) -> str:
        """The tap at ``position`` among them."""
        if self.stride != 1:
            position = f"({position})*{self.stride}" if " " in position else f"{position}*{self.stride}"
        return f"{position} + {self.start}" if self.start != "0" else position


def one_loop(w: Writer, moving: list[Tap], multiply: Callable[[], None]) -> None:
    """``multiply`` at every tap of ``moving`` and block of channels; a counter's digits say which."""
    (c,) = w.k.window.sums
    block = w.t.blocks[c]
    if not moving:
        nest(w, [f"for {w.vars[c]} in range(0, {c.extent}, {block}):"], multiply, _HINT)
        return
    row, blocks = w.scopes[0].lines, f"ceil({c.extent}, {block})"
    step = w.names.fresh("step")
    taps = {tap: _taps(w, tap, row) for tap in moving}
    lets = []
    at = step if w.t.whole_channels else f"{step} // {blocks}"
    for n, tap in enumerate(reversed(moving)):
        count = taps[tap].count
        inner = f"({at})" if " " in at else at
        digit = at if n == len(moving) - 1 else f"{inner} % {count}"
        lets.append(f"{w.at_tap[tap]} = {taps[tap].at(digit)}")
        at = f"{inner} // {count}"
    total = "*".join(taps[tap].count for tap in moving)
    if w.t.whole_channels:
        row.append(f"{w.vars[c]} = 0")
    else:
        lets.append(f"{w.vars[c]} = ({step} % {blocks})*{block}")
        total = f"{total}*{blocks}"

    def body() -> None:
        w.lines.extend(lets)
        multiply()

    nest(w, [f"for {step} in range({total}):"], body, _HINT)


def _taps(w: Writer, tap: Tap, row: list[str]) -> _Taps:
    """Names one dimension's tap; by phase, the first and how many there are are computed before the loop."""
    name = w.names.fresh(tap_letters(w.k.window).get(tap, "k"))
    set_tap(w, tap, name)
    start, stride = tap_range(tap, w.phase[tap.out][1] if tap.out in w.phase else "0")
    if start == "0":
        return _Taps(str(tap.kernel), start, stride)
    first, count = w.names.fresh(f"{name}_first"), w.names.fresh(f"{name}_taps")
    row.append(f"{first} = {start}")
    row.append(f"{count} = max(0, ceil({tap.kernel} - {first}, {stride}))")
    return _Taps(count, first, stride)
