"""The loops of a window operator as sketch text: its grid, its taps and its blocks of channels."""

from __future__ import annotations

from collections.abc import Callable

from kernellab.agents.designer.emit_values import Scope, Tiling
from kernellab.agents.designer.emit_window_places import WindowPlaces
from kernellab.agents.designer.expr import Axis, Expr, Leaf, Tap, Win
from kernellab.agents.designer.extents import Extent
from kernellab.agents.designer.plan import Kernel
from kernellab.agents.designer.text import Names, Text
from kernellab.agents.designer.windows import phases, tap_range

#: names of the taps of a window over so many dimensions
LETTERS = {1: ("kw",), 2: ("kh", "kw"), 3: ("kd", "kh", "kw")}


class WindowWriter(WindowPlaces):
    """Loops of one window operator; its sums are written by what derives from this."""

    def __init__(self, kernel: Kernel, tiling: Tiling, views: dict[str, tuple[Extent, ...]], names: Names) -> None:
        super().__init__(kernel, tiling, views, names)
        assert isinstance(kernel.dot, Win)
        self.win = kernel.dot
        #: axes along which one program computes several tiles: the variable of its first
        self.runs: dict[Axis, str] = {}
        #: weights that stay on chip while positions stream past, where they do
        self.held: Text | None = None

    def _name(self, order: list[Axis], spatial: list[Axis]) -> None:
        rank = len(spatial)
        letters = {1: ("ow",), 2: ("oh", "ow"), 3: ("od", "oh", "ow")}.get(rank, ())
        known = dict(zip([a for a in order if a in spatial], letters, strict=False))
        for axis in order:
            self.vars[axis] = self.names.fresh(known.get(axis) or self._letter(axis))
        for axis in self.win.sums:
            self.vars[axis] = self.names.fresh("c")

    def _letter(self, axis: Axis) -> str:
        b = self.win.b
        free_b = self.free(b) if self.win.pairs else frozenset()
        if axis in free_b:
            return "g" if axis in self.free(self.win.a) else "co"
        return super()._letter(axis)

    # -- the grid

    def _window_grid(self, order: list[Axis], body: list[str]) -> list[str]:
        weights = self.free(self.win.b) - self.free(self.win.a) if self.win.pairs else frozenset()
        # neighbouring programs share the input's tile, and differ in the output's channels
        order = [a for a in order if a not in weights] + [a for a in order if a in weights]
        heads = [f"for {self.runs.get(axis, self.vars[axis])} in {self._span(axis)}:" for axis in order]
        # the phases of one place write to the same lines of memory
        heads += [f"for {name} in range({stride}):" for stride, name in self.phase.values()]
        heads = heads or [f"for {self.names.fresh('once')} in range(1):"]
        lines: list[str] = []
        for depth, head in enumerate(heads):
            lines.append("    " * depth + f'@llm_hint("parallel", "{self.t.core}")')
            lines.append("    " * depth + head)
        return lines + ["    " * len(heads) + line for line in body]

    def _span(self, axis: Axis) -> str:
        stop = str(axis.extent)
        if axis in self.phase:
            stride = self.phase[axis][0]
            stop = str(-(-axis.extent // stride)) if isinstance(axis.extent, int) else f"ceil({stop}, {stride})"
        step = self.t.blocks.get(axis)
        if axis in self.runs:
            step = f"{self.t.run}*{step}"
        return f"range(0, {stop}, {step})" if step else f"range({stop})"

    # -- taps

    def _loops(self, taps: list[Tap], body: Callable[[], None]) -> None:
        """Loops over ``taps`` and over blocks of the summed channels, around what ``body`` writes."""
        letters = dict(zip(self.win.taps, LETTERS.get(len(self.win.taps), ()), strict=False))
        heads: list[str] = []
        for tap in taps:
            name = self.names.fresh(letters.get(tap, "k"))
            self._set_tap(tap, name)
            phase = self.phase[tap.out][1] if tap.out in self.phase else "0"
            start, step = tap_range(tap, phase)
            if step == 1 and start == "0":
                heads.append(f"for {name} in range({tap.kernel}):")
            else:
                heads.append(f"for {name} in range({start}, {tap.kernel}, {step}):")
        for axis in self.win.sums:
            block = self.t.blocks.get(axis)
            span = f"range(0, {axis.extent}, {block})" if block else f"range({axis.extent})"
            heads.append(f"for {self.vars[axis]} in {span}:")
        self._nest(heads, body)

    def _nest(self, heads: list[str], body: Callable[[], None], hint: str = "") -> None:
        if not heads:
            body()
            return
        inner = Scope(frozenset())
        self.scopes.append(inner)
        self._nest(heads[1:], body, hint)
        self.scopes.pop()
        lines = self.scopes[-1].lines
        if hint and len(heads) == 1:
            lines.append(hint)
        lines.append(heads[0])
        lines += ["    " + line for line in inner.lines]

    def _set_tap(self, tap: Tap, text: str) -> None:
        self.at_tap[tap] = text
        if tap.k is not None:
            self.vars[tap.k] = text

    def _moving(self) -> list[Tap]:
        """Taps with a choice: more than one, or (by phase) one or none."""
        return [tap for tap in self.win.taps if tap.kernel > 1 or phases(tap) > 1]

    def _load(self, e: Expr, pad: str = "") -> Text:
        """A load at the current taps, never kept for other ones."""
        assert isinstance(e, Leaf)
        region, loaded = self._region(e.tensor, e.index)
        name = self.names.fresh(f"{e.tensor}_{'tile' if loaded else 'here'}")
        self.scopes[-1].lines.append(f"load({e.tensor}[{region}] -> {name}{pad})")
        return Text(name, tuple(loaded))

    def _ordered_as(self, value: Text, axes: tuple[Axis, ...]) -> Text:
        if value.axes == axes:
            return value
        turned = self.names.fresh(f"{value.text}_turned")
        perm = ", ".join(str(value.axes.index(a)) for a in axes)
        self.scopes[-1].lines.append(f"{turned} = transpose({value.text}, perm=[{perm}])")
        return Text(turned, axes)
