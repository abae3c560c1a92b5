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
from kernellab.lens.cpp.build import Instructions, compiled, flags_of, main_cpp
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
#: bytes: an offset farther after the last instruction belongs to another text
_LONGEST_INSTRUCTION = 16


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
    # by line of the source: samples of each row of the assembly, and rows that may be what took the time
    samples = defaultdict[int, Counter[int]](Counter)
    candidates = defaultdict[int, set[int]](set)

    def source_line(row: int) -> int:
        """Return the source's line of a row of the assembly; 0 if it is of another file."""
        return next((line for file, line in built.places.get(row, ()) if file == main), 0)

    for spot in hot.spots:
        function = built.functions.get(spot.function, Instructions())
        at = bisect_right(function.offsets, spot.offset) - 1
        if at < 0 or spot.offset - function.offsets[-1] > _LONGEST_INSTRUCTION:
            continue
        row = function.lines[at]
        line = source_line(row)
        if line:
            samples[line][row] += spot.count
            # the program counter is at the instruction that waits, or after it (AMD x86)
            waiting = function.lines[max(at - _SKID, 0) : at + 1]
            candidates[line].update(row for row in waiting if source_line(row) == line)
    text = source.files[main].splitlines()
    hottest = [
        _hot_line(main, number, rows, candidates[number], built.lines, hot.samples, source)
        for number, rows in samples.items()
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


def _hot_line(
    file: str, number: int, rows: Counter[int], candidates: set[int], assembly: list[str], samples: int, source: Source
) -> HotLine:
    """Return line ``number``, with its samples by row of the assembly and the rows that may be what took the time."""
    count = sum(rows.values())
    instructions = [assembly[row - 1].strip() for row in candidates]
    computing = [instruction for instruction in instructions if ARITHMETIC.match(instruction)]
    return HotLine(
        file=file,
        line=number,
        text=source.files[file].splitlines()[number - 1].strip(),
        share=count / samples,
        samples=samples,
        sketch=source.line_map.get(file, {}).get(number, 0),
        bits=max(map(vector_bits, computing), default=0),
        arithmetic=bool(computing),
        stack=sum(n for row, n in rows.items() if STACK.search(assembly[row - 1].strip())) / count,
    )
