"""A copy of a tensor in another order as sketch text: what the windows over it want side by side lies so."""

from __future__ import annotations

from kernellab.agents.designer.channels_last import Copy
from kernellab.agents.designer.emit import Emitter
from kernellab.agents.designer.emit_window_places import WindowPlaces
from kernellab.agents.designer.expr import Axis, Ix, Tap
from kernellab.agents.designer.text import plus


class CopyEmitter(WindowPlaces, Emitter):
    """Writes one :class:`Copy`: a tile is read along the source's rows and stored along the copy's."""

    def _letter(self, axis: Axis) -> str:
        if axis in self.k.red:
            return "k"
        assert isinstance(self.k, Copy)
        return "c" if axis is self.k.last else super()._letter(axis)

    def _position(self, tap: Tap) -> str:
        self.at_tap[tap] = self.vars[tap.k] if tap.k is not None else "0"
        return super()._position(tap)

    def _region(self, tensor: str, index: tuple[Ix, ...]) -> tuple[str, list[Axis]]:
        *outer, last = index
        leaves = last.leaves()
        if last.win is not None or len(leaves) < 2:
            return super()._region(tensor, index)
        text, axes = super()._region(tensor, tuple(outer)) if outer else ("", [])
        # the taps' elements stand side by side, each with its channels
        *taps, channel = leaves
        at = self.vars[taps[0]]
        for tap in taps[1:]:
            at = f"({at})*{tap.extent} + {self.vars[tap]}" if " " in at else f"{at}*{tap.extent} + {self.vars[tap]}"
        width = self.extent(channel)
        start = f"({at})*{channel.extent}" if " " in at else f"{at}*{channel.extent}"
        if channel in self.t.blocks:
            start = plus(start, self.vars[channel])
        return ", ".join([*([text] if outer else []), f"{start}:{start} + {width}"]), [*axes, channel]


def why_copy(k: Copy) -> list[str]:
    why = ["What one position sums lies side by side in the copy: 16 bytes a lane, and rows that tensor cores take."]
    if k.red:
        why.append("Taps stand beside the channels, so that the products are not of a few elements.")
    return why
