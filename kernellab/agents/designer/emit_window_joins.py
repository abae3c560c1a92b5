"""Taps joined one by one as sketch text: pooling, and windows of one channel."""

from __future__ import annotations

from itertools import product

from kernellab.agents.designer.emit_window_loops import WindowWriter
from kernellab.agents.designer.expr import Axis, Tap
from kernellab.agents.designer.text import DTYPES, Text
from kernellab.agents.designer.windows import phases

#: taps whose loads are written out one by one; a C++ compiler takes long over the edges of more
UNROLLED = 32
UNROLLED_CPP = 9


class JoinWriter(WindowWriter):
    """The sum or maximum of a tile of outputs, a term for each tap."""

    def _direct(self) -> Text:
        win = self.win
        axes = self.tile_axes(self.free(win))
        moving, count = self._moving(), 1
        most = UNROLLED if self.t.core == "grididx" else UNROLLED_CPP
        written: list[Tap] = []
        for tap in reversed(moving):
            if phases(tap) > 1 or count * tap.kernel > most:
                break
            written.insert(0, tap)
            count *= tap.kernel
        looped = [tap for tap in moving if tap not in written]
        name = self.names.fresh("best" if win.join == "max" else "acc")
        shape = [self.extent(a) for a in axes]
        dtype = DTYPES[win.dtype if win.dtype == "float64" else "float32"]
        self.scopes[0].lines.append(f"{name} = {self._filled(shape, '-inf' if win.join == 'max' else '0', dtype)}")
        self._loops(looped, lambda: self._join(name, written, axes))
        return Text(name, axes)

    def _join(self, name: str, written: list[Tap], axes: tuple[Axis, ...]) -> None:
        rows = written[:-1]
        for outer in product(*(range(tap.kernel) for tap in rows)):
            terms = []
            for inner in range(written[-1].kernel) if written else (0,):
                for tap, at in zip(written, (*outer, inner), strict=False):
                    self._set_tap(tap, str(at))
                terms.append(self._term(axes))
            lines = self.scopes[-1].lines
            if self.win.join == "max":
                while len(terms) > 1:
                    terms = [f"max({', '.join(terms[i : i + 2])})" if i + 1 < len(terms) else terms[i]
                             for i in range(0, len(terms), 2)]  # fmt: skip
                lines.append(f"{name} = max({name}, {terms[0]})")
            else:
                lines.append(f"{name} = {' + '.join([name, *terms])}")

    def _term(self, axes: tuple[Axis, ...]) -> str:
        x = self._load(self.win.a, ", pad=-inf" if self.win.join == "max" else "")
        value = self._ordered_as(x, tuple(a for a in axes if a in x.axes))
        if not self.win.pairs:
            return self.spread(value, axes).text
        w = self._load(self.win.b)
        return f"{self.spread(value, axes).text}*{self.spread(w, axes).text}"
