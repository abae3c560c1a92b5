"""A cache of a lowering's results for the kernels of a program.

A program is lowered once for each choice of each tunable (:mod:`kernellab.lowering.tunables`), and most of its kernels
do not depend on that tunable."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Mapping
from typing import TypeVar

from kernellab.sketch.program.program import Program

T = TypeVar("T")


class RecordedConstants(dict[str, int]):
    """Constants that record which of them were read, and their values."""

    def __init__(self, consts: Mapping[str, int]) -> None:
        super().__init__(consts)
        #: by name the value that was read; None: it has none
        self.read: dict[str, int | None] = {}

    def __contains__(self, name: object) -> bool:
        self._note(str(name))
        return super().__contains__(name)

    def __getitem__(self, name: str) -> int:
        self._note(name)
        return super().__getitem__(name)

    def _note(self, name: str) -> None:
        self.read[name] = self.get(name)


class _Memory(threading.local):
    """The program that a thread lowered last, and its results."""

    program: Program | None = None
    written: dict[Hashable, list[tuple[RecordedConstants, object]]]


_memory = _Memory()


def remembered(
    program: Program, key: Hashable, consts: Mapping[str, int], write: Callable[[RecordedConstants], T]
) -> T:
    """Return ``write(consts)``, or an earlier result for constants that agree in all that it read.

    ``key`` holds all other dependencies of the result except ``program``. Callers must not change the result."""
    if _memory.program is not program:
        _memory.program, _memory.written = program, {}
    before = _memory.written.setdefault(key, [])
    for recorded, earlier in before:
        if all(consts.get(name) == value for name, value in recorded.read.items()):
            return earlier  # type: ignore[return-value]
    recorded = RecordedConstants(consts)
    result = write(recorded)
    before.append((recorded, result))
    return result


__all__ = ["RecordedConstants", "remembered"]
