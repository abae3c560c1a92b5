"""Which lines of a sketch are pinned, also in one that cannot be read to its end."""

from __future__ import annotations

from functools import lru_cache

from kernellab.sketch.syntax.layout import cut
from kernellab.sketch.syntax.pins import pinned_lines as pins_of


def pinned_lines(text: str) -> list[int]:
    """First lines (from 1) of the pinned statements."""
    return list(_pinned(text))


@lru_cache(maxsize=64)
def _pinned(text: str) -> tuple[int, ...]:
    pins = pins_of(text)
    return tuple(line for line, _ in pins) or tuple(line.line for line in cut(text).lines if line.pinned)
