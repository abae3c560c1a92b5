"""Where a window reads and writes, as sketch text: slices that move with its taps and with the outputs' phase."""

from __future__ import annotations

from kernellab.agents.designer.emit_loops import LoopWriter
from kernellab.agents.designer.emit_values import Tiling
from kernellab.agents.designer.expr import Axis, Iota, Ix, Tap
from kernellab.agents.designer.extents import Extent
from kernellab.agents.designer.plan import Kernel
from kernellab.agents.designer.text import Names, Text, plus
from kernellab.agents.designer.windows import phases


class WindowPlaces(LoopWriter):
    """Adds windows to the places in tensors."""

    def __init__(self, kernel: Kernel, tiling: Tiling, views: dict[str, tuple[Extent, ...]], names: Names) -> None:
        super().__init__(kernel, tiling, views, names)
        #: output axes that run by phase: stride and the phase's variable
        self.phase: dict[Axis, tuple[int, str]] = {}
        #: the tap that is looked at, as text
        self.at_tap: dict[Tap, str] = {}

    def _region(self, tensor: str, index: tuple[Ix, ...]) -> tuple[str, list[Axis]]:
        items: list[str] = []
        axes: list[Axis] = []
        for ix in index:
            if ix.win is not None:
                self._item(
                    items, axes, ix.win.out, self._position(ix.win), ix.win.stride if not ix.win.transposed else 1
                )
                continue
            leaf = ix.leaves()[0] if ix.leaves() else None
            if leaf is not None and leaf in self.phase:
                stride, name = self.phase[leaf]
                self._item(items, axes, leaf, plus(f"{self.vars[leaf]}*{stride} + {name}", ix.offset), stride)
                continue
            text, found = super()._region(tensor, (ix,))
            items.append(text)
            axes += found
        return ", ".join(items) or "0", axes

    def _item(self, items: list[str], axes: list[Axis], axis: Axis | None, start: str, step: int) -> None:
        if axis is None or axis not in self.t.blocks:
            items.append(start)
            return
        extent = self.extent(axis)
        items.append(f"{start}:{start} + {extent}*{step}:{step}" if step > 1 else f"{start}:{start} + {extent}")
        axes.append(axis)

    def _position(self, tap: Tap) -> str:
        """Where in the input the first output of the tile looks at the current tap."""
        at = self.vars[tap.out] if tap.out is not None else ""
        k = self.at_tap.get(tap, "0")
        if phases(tap) > 1:
            phase = self.phase[tap.out][1] if tap.out is not None else "0"
            reach = _sum([(phase, 1), ("1", tap.pad), (k, -tap.dilation)])
            return f"{at} + ({reach}) // {tap.stride}" if at else f"({reach}) // {tap.stride}"
        if tap.transposed:
            return _sum([(at, 1), ("1", tap.pad), (k, -tap.dilation)])
        return _sum([(at, tap.stride), (k, tap.dilation), ("1", -tap.pad)])

    def _iota(self, e: Iota) -> Text:
        leaves = e.index.leaves()
        if leaves and leaves[0] in self.phase:
            stride, name = self.phase[leaves[0]]
            here = self.vars[leaves[0]]
            if leaves[0] in self.t.blocks:
                return Text(f"({here} + arange({self.extent(leaves[0])}))*{stride} + {name}", (leaves[0],), 5)
            return Text(f"{here}*{stride} + {name}", (), 5)
        return super()._iota(e)


def _sum(terms: list[tuple[str, int]]) -> str:
    """``a*x + b*y - c`` without what adds nothing; numbers fold."""
    constant, text = 0, ""
    for name, factor in terms:
        if not name or not factor or name == "0":
            continue
        if name.isdigit():
            constant += int(name) * factor
            continue
        part = name if abs(factor) == 1 else f"{name}*{abs(factor)}"
        text = f"{text} {'-' if factor < 0 else '+'} {part}" if text else part if factor > 0 else f"0 - {part}"
    if not text:
        return str(constant)
    return plus(text, constant)
