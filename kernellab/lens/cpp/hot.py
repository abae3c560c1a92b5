"""A C++ kernel's profile: the Verifier's program counters at lines of the source and its sketch.

The judge records a function's name and an offset in it. The same text with the same flags is compiled to assembly,
whose offsets are the same; line information does not change them."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter, defaultdict
from dataclasses import dataclass
from textwrap import shorten

from kernellab.errors import SessionError
from kernellab.lens.cpp.build import compiled, flags_of, main_cpp
from kernellab.lens.cpp.facts import ARITHMETIC, STACK, vector_bits
from kernellab.records import Source
from kernellab.records.counters import HotSpots

#: a function of the helpers' namespace: the length of its name, and the name itself
_HELPER = re.compile(r"_Z+NK?2klL?(\d{1,3})(\w+)")
#: most quoted characters of a line, and the least share of its samples at stack accesses that is reported
_QUOTED, _SPILLS = 80, 0.25


@dataclass(frozen=True)
class HotLine:
    """A line of a source with its share of all ``samples``; ``bits`` is the widest vector of its arithmetic (0: none,
    or single numbers), ``stack`` the share of its samples at instructions that use the stack; ``sketch`` its sketch
    line, 0 where there is none."""

    file: str
    line: int
    text: str
    share: float
    samples: int
    sketch: int = 0
    bits: int = 0
    arithmetic: bool = False
    stack: float = 0.0

    @property
    def count(self) -> int:
        return round(self.share * self.samples)

    @property
    def single(self) -> bool:
        """Is its arithmetic scalar, not on vectors?"""
        return self.arithmetic and not self.bits

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}{f' (sketch line {self.sketch})' if self.sketch else ''}"

    @property
    def told(self) -> str:
        """The line in a sentence."""
        place = self.place
        # the line's comment is the sketch's line, in full or abbreviated
        code = self.text.partition("//")[0]
        quoted = shorten(code, _QUOTED, placeholder=" ...")
        text = f"{self.share:.0%} of {self.samples} samples of the kernel's time are at {place}, `{quoted}`"
        if self.arithmetic:
            text += f"; its arithmetic is on {'single numbers' if self.single else f'vectors of {self.bits} bits'}"
        if self.stack >= _SPILLS:
            text += f"; {self.stack:.0%} of these are at instructions that use the stack (a local array, or a spill)"
        return f"{text}."


#: most instructions between the one that took the time and the sampled program counter
_SKID = 2


def hot_lines(source: Source, hot: HotSpots | None) -> tuple[HotLine, ...]:
    """Return the lines of ``source`` at program counters, the most sampled first; none if they cannot be mapped (no
    C++, no binutils, a compiler error). Blocks for a compiler's seconds, once for each source."""
    main = main_cpp(source) if hot is not None and hot.spots else None
    if main is None or hot is None:
        return ()
    try:
        built = compiled(tuple(sorted(source.files.items())), main, flags_of(source))
    except SessionError:
        return ()
    lines = built.lines
    ran, near = defaultdict[int, Counter[int]](Counter), defaultdict[int, set[int]](set)

    def place_of(row: int) -> int:
        return next((line for file, line in built.places.get(row, ()) if file == main), 0)

    for spot in hot.spots:
        offsets, rows = built.functions.get(spot.function, ([], []))
        at = bisect_right(offsets, spot.offset) - 1
        # an offset far after the last instruction belongs to another text
        if at < 0 or spot.offset - offsets[-1] > 16:
            continue
        place = place_of(rows[at])
        if place:
            ran[place][rows[at]] += spot.count
            # the program counter is at the instruction that waits, or after it (AMD x86)
            near[place].update(row for row in rows[max(at - _SKID, 0) : at + 1] if place_of(row) == place)
    text = source.files[main].splitlines()
    hottest = [
        _line(main, number, text[number - 1].strip(), rows, near[number], lines, hot.samples, source)
        for number, rows in ran.items()
        if number <= len(text)
    ]
    return tuple(sorted(hottest, key=lambda line: (-line.share, line.line)))


def helpers_in(hot: HotSpots) -> tuple[str, ...]:
    """Return the sampled helpers with separate code, the most sampled first."""
    counts = Counter[str]()
    for spot in hot.spots:
        if helper := _HELPER.match(spot.function):
            counts[f"kl::{helper[2][: int(helper[1])]}"] += spot.count
    return tuple(name for name, _ in counts.most_common())


def _line(
    file: str,
    number: int,
    text: str,
    rows: Counter[int],
    near: set[int],
    lines: list[str],
    samples: int,
    source: Source,
) -> HotLine:
    count = sum(rows.values())
    instructions = {row: lines[row - 1].strip() for row in rows}
    computing = [instruction for row in near if ARITHMETIC.match(instruction := lines[row - 1].strip())]
    return HotLine(
        file, number, text, count / samples, samples, source.line_map.get(file, {}).get(number, 0),
        max(map(vector_bits, computing), default=0), bool(computing),
        sum(rows[row] for row, instruction in instructions.items() if STACK.search(instruction)) / count,
    )  # fmt: skip
