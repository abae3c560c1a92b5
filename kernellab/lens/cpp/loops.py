"""The innermost loops of an assembly, which run most often if nothing was measured."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from kernellab.lens.read.rows import Row

_LOCAL = re.compile(r"^(\.L\w+):")
#: x86's jumps, and AArch64's branches on a condition
_JUMP = re.compile(r"^\s+(?:j\w+|b\.\w+|cbn?z|tbn?z|b)\b.*?(\.L\w+)\s*$")
_VECTOR = re.compile(r"\b[xyz]mm\d+|\bv\d+\.\d*[bhsd]|\bz\d+\.[bhsd]")
#: one number in a vector register (x86)
_SINGLE = re.compile(r"^v?\w+s[sdh]\b")


@dataclass(frozen=True)
class Loop:
    """A loop: ``rows`` from the label to the jump back; ``first`` is the label's line in the level, from 1."""

    label: str
    first: int
    rows: tuple[Row, ...]

    @property
    def instructions(self) -> list[str]:
        return [row.text.strip() for row in self.rows if not row.text.endswith(":")]

    def lines(self, file: str) -> list[int]:
        """Return the source's lines, in order."""
        return sorted({line for row in self.rows for name, line in row.places if name == file})


def innermost(rows: Sequence[Row], first: int = 1) -> list[Loop]:
    """Return the loops without inner loops, those with most packed instructions first. ``first`` is the rows' first
    line."""
    labels = {match[1]: at for at, row in enumerate(rows) if (match := _LOCAL.match(row.text))}
    spans = set[tuple[int, int]]()
    for at, row in enumerate(rows):
        if (jump := _JUMP.match(row.text)) and labels.get(jump[1], at + 1) <= at:
            spans.add((labels[jump[1]], at))
    # a block after the function's end that jumps back into it closes no loop
    ends = [at for at, row in enumerate(rows) if row.text.strip() == "ret"]
    spans = {(a, b) for a, b in spans if not any(a < at < b for at in ends)}
    inner = [s for s in spans if not any(o != s and s[0] <= o[0] and o[1] <= s[1] for o in spans)]
    loops = [Loop(rows[a].text.rstrip(":"), a + first, tuple(rows[a : b + 1])) for a, b in inner]
    return sorted(loops, key=_rank)


def _rank(loop: Loop) -> tuple[int, int, int]:
    vectors = [text for text in loop.instructions if _VECTOR.search(text)]
    packed = [text for text in vectors if not _SINGLE.match(text)]
    return -len(packed), -len(vectors), loop.first
