"""A model's time as the tree of its modules."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kernellab.model_integration.measure import Measured

#: a module of a smaller share of the time is not shown
_LEAST = 0.02


@dataclass(frozen=True)
class Part:
    """A module: ms of its operations with those of the modules within it, and without them; backward included."""

    path: str
    total_ms: float
    self_ms: float

    @property
    def depth(self) -> int:
        """0 for the model itself."""
        return self.path.count(".") + 1 if self.path else 0


def parts(measured: Measured) -> tuple[Part, ...]:
    """Each module before those within it, the longest first among its like. A module that runs nothing has none."""
    own: dict[str, float] = defaultdict(float)
    total: dict[str, float] = defaultdict(float)
    for event in measured.events:
        ms = event.forward + event.backward
        own[event.path] += ms
        for path in _above(event.path):
            total[path] += ms
    order = sorted(total, key=lambda path: [(-total[above], above) for above in _above(path)])
    return tuple(Part(path, total[path], own[path]) for path in order)


def text(measured: Measured, name: str, least: float = _LEAST) -> str:
    """The parts that take at least a share ``least`` of the device's time, times in ms; ``name`` is the model's."""
    whole = measured.device_ms or 1.0
    lines = [f"{'total':>8} {'self':>8} {'share':>6}  module"]
    for part in parts(measured):
        if part.total_ms >= least * whole:
            word = part.path.rpartition(".")[2] or name
            share = 100 * part.total_ms / whole
            lines.append(f"{part.total_ms:8.3f} {part.self_ms:8.3f} {share:5.1f}%  {'  ' * part.depth}{word}")
    return "\n".join(lines)


def _above(path: str) -> list[str]:
    """The model, and each module down to this one."""
    words = path.split(".") if path else []
    return [".".join(words[:n]) for n in range(len(words) + 1)]


__all__ = ["Part", "parts", "text"]
