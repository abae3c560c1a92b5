"""What a lowering has written for the kernels of a program, so that it need not write them again.

A program is lowered once for each choice of each tunable (:mod:`kernellab.lowering.tunables`), and most of its kernels
do not ask for that one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Mapping
from typing import TypeVar

from kernellab.sketch.program.program import Program

T = TypeVar("T")


class Asked(dict[str, int]):
    """Constants that note which of them have been asked for, and what was answered."""

    def __init__(self, consts: Mapping[str, int]) -> None:
        super().__init__(consts)
        self.answers: dict[str, int | None] = {}

    def __contains__(self, name: object) -> bool:
        self._note(str(name))
        return super().__contains__(name)

    def __getitem__(self, name: str) -> int:
        self._note(name)
        return super().__getitem__(name)

    def _note(self, name: str) -> None:
        self.answers[name] = self.get(name)


class _Memory(threading.local):
    """The program that a thread has lowered last, and what was written for it."""

    program: Program | None = None
    written: dict[Hashable, list[tuple[Asked, object]]]


_memory = _Memory()


def remembered(program: Program, key: Hashable, consts: Mapping[str, int], write: Callable[[Asked], T]) -> T:
    """``write(consts)``, or what it returned before for constants that differ in nothing that it asked for.

    ``key`` holds all else that the result depends on but ``program``. No caller may change the result.
    """
    if _memory.program is not program:
        _memory.program, _memory.written = program, {}
    before = _memory.written.setdefault(key, [])
    for asked, found in before:
        if all(consts.get(name) == answer for name, answer in asked.answers.items()):
            return found  # type: ignore[return-value]
    asked = Asked(consts)
    result = write(asked)
    before.append((asked, result))
    return result


__all__ = ["Asked", "remembered"]
