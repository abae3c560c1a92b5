"""What the compiler made of an answer: its hottest loop, and how much of that works on whole vectors."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernellab.lens.cpp.loops import innermost
from kernellab.lens.read.rows import Row
from kernellab.records import Source

if TYPE_CHECKING:
    from kernellab.lens import Lens

#: floating-point arithmetic of x86: packed (ps, pd) or on one number (ss, sd)
_ARITHMETIC = re.compile(r"v?(?:fn?m(?:add|sub)\w*|add|sub|mul|div|sqrt|max|min|rsqrt|rcp)(?P<kind>[ps])[sd]\b")


@dataclass(frozen=True)
class Instruction:
    """``line`` is that of the source it comes from, 0 for none."""

    text: str
    line: int


def hottest_loop(lens: Lens) -> list[Instruction]:
    """The loop that the lens holds for the hottest, from its label to its jump; empty where there is none."""
    level = lens.level("asm")
    loop = next(iter(innermost([Row(text) for text in level.text.splitlines()])), None) if level else None
    if level is None or loop is None:
        return []
    return [
        Instruction(" ".join(row.text.split()), next(iter(level.up.get(number, ())), 0))
        for number, row in enumerate(loop.rows, loop.first)
        if row.text.strip() and not row.text.endswith(":")
    ]


def packed_share(source: Source) -> float | None:
    """Of the instructions of the hottest loop that compute with floats the share that works on whole vectors, 0 to 1;
    None where there is no such instruction, or the compiler makes no x86 code.

    Raises:
        SessionError: the compiler is missing, or it refuses.
    """
    from kernellab.lens import look

    return share_of(hottest_loop(look(source)))


def share_of(loop: Sequence[Instruction]) -> float | None:
    """As :func:`packed_share`, of the loop itself."""
    kinds = [found["kind"] for one in loop if (found := _ARITHMETIC.match(one.text))]
    return kinds.count("p") / len(kinds) if kinds else None
