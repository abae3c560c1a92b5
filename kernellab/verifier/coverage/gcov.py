"""GCC's coverage notes (``.gcno``) and counts (``.gcda``): the flow graph of each function, with how often it ran.

The program gcov leaves out functions that the compiler made, so also the bodies of OpenMP's parallel regions, and its
report has no graph, by which code that only raises is known. Both files come from a process that ran the candidate:
whatever they hold, reading them raises nothing but ValueError.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

_NOTE, _DATA = b"gcno", b"gcda"
_FUNCTION, _BLOCKS, _ARCS, _LINES, _COUNTS = 0x01000000, 0x01410000, 0x01430000, 0x01450000, 0x01A10000
#: bits of an arc: left out of the counts, since the flow gives it; not in the source (a call that does not return); the
#: usual way on
_ON_TREE, _FAKE, _FALLS_THROUGH = 1, 2, 4
#: largest number of blocks of one function and of bytes of one file
_MOST_BLOCKS, _MOST_BYTES = 1 << 16, 1 << 26


@dataclass(frozen=True)
class Arc:
    """A way from the block ``source`` to the block ``target``; ``fake``: taken only where a call does not return;
    ``throws``: taken by an exception of a call."""

    source: int
    target: int
    fake: bool
    on_tree: bool
    throws: bool = False


@dataclass
class Function:
    """A function's flow graph. The block 0 is its entry and the block 1 its exit."""

    name: str
    file: str
    first: int
    last: int
    blocks: int
    arcs: list[Arc] = field(default_factory=list)
    #: (file, line) of the code of each block, in order
    lines: dict[int, list[tuple[str, int]]] = field(default_factory=dict)
    #: how often each arc was taken, in the order of ``arcs``
    taken: list[int] = field(default_factory=list)

    def ran(self) -> list[int]:
        """Return how often each block ran."""
        into, out = [0] * self.blocks, [0] * self.blocks
        for arc, count in zip(self.arcs, self.taken, strict=True):
            into[arc.target] += count
            out[arc.source] += count
        return [max(a, b) for a, b in zip(into, out, strict=True)]


@dataclass(frozen=True)
class Notes:
    """One compiled file: the folder in which it was compiled, and its functions by their numbers and checksums."""

    stamp: int
    folder: str
    functions: Mapping[tuple[int, int, int], Function]


class _Reader:
    def __init__(self, data: bytes, magic: bytes) -> None:
        if len(data) > _MOST_BYTES or len(data) < 12 or data[:4] not in (magic, magic[::-1]):
            raise ValueError("not a file of GCC's coverage")
        self.data, self.at, self.end = data, 4, len(data)
        self.order = "<" if data[:4] == magic[::-1] else ">"
        version = data[4:8][::-1] if self.order == "<" else data[4:8]
        self.at = 8
        #: the compiler's major version: "B22*" is 12.2, "A93*" is 9.3
        self.major = (version[0] - ord("A")) * 10 + version[1] - ord("0")
        #: lengths are bytes since GCC 12, and words before
        self.unit = 1 if self.major >= 12 else 4

    def word(self) -> int:
        if self.at + 4 > self.end:
            raise ValueError("a file of GCC's coverage is cut off")
        (value,) = struct.unpack_from(f"{self.order}I", self.data, self.at)
        self.at += 4
        return int(value)

    def signed(self) -> int:
        value = self.word()
        return value - (1 << 32) if value >> 31 else value

    def count(self) -> int:
        low = self.word()
        return low | self.word() << 32

    def text(self) -> str:
        size = self.word() * self.unit
        if self.at + size > self.end:
            raise ValueError("a file of GCC's coverage is cut off")
        value = self.data[self.at : self.at + size].split(b"\0")[0].decode(errors="replace")
        self.at += size
        return value

    def records(self) -> Iterator[tuple[int, int, int]]:
        """Yield the tag, the length in bytes (negative: the values are zeros and left out) and the end of each
        record."""
        while self.at + 8 <= self.end:
            tag = self.word()
            if not tag:
                return
            length = self.signed() * self.unit
            after = self.at + max(length, 0)
            if after > self.end:
                raise ValueError("a file of GCC's coverage is cut off")
            yield tag, length, after
            self.at = after


def notes(data: bytes) -> Notes:
    """Return the flow graphs of a ``.gcno`` file of GCC 9 or later. Raises ValueError for another file."""
    reader = _Reader(data, _NOTE)
    if reader.major < 9:
        raise ValueError(f"notes of version {reader.major}")
    stamp = reader.word()
    if reader.major >= 12:
        reader.word()
    folder = reader.text()
    reader.word()
    functions: dict[tuple[int, int, int], Function] = {}
    current: Function | None = None
    for tag, length, after in reader.records():
        if tag == _FUNCTION and length > 0:
            key = reader.word(), reader.word(), reader.word()
            name = reader.text()
            reader.word()
            file, first = reader.text(), reader.word()
            reader.word()
            functions[key] = current = Function(name, file, first, reader.word(), 0)
        elif current is None:
            continue
        elif tag == _BLOCKS:
            current.blocks = min(reader.word(), _MOST_BLOCKS)
        elif tag == _ARCS:
            source = reader.word()
            while reader.at + 8 <= after:
                target, flags = reader.word(), reader.word()
                if max(source, target) >= current.blocks:
                    raise ValueError("an arc leads to no block")
                arc = Arc(source, target, bool(flags & _FAKE), bool(flags & _ON_TREE), not flags & _FALLS_THROUGH)
                current.arcs.append(arc)
        elif tag == _LINES:
            block, where = reader.word(), current.file
            places = current.lines.setdefault(block, [])
            while reader.at + 4 <= after:
                line = reader.word()
                if line:
                    places.append((where, line))
                elif name := reader.text():
                    where = name
                else:
                    break
    for function in functions.values():
        # only a block that ends in a call has a fake arc, and such a block decides nothing
        calls = {arc.source for arc in function.arcs if arc.fake}
        function.arcs = [
            replace(arc, throws=arc.throws and not arc.fake and arc.source in calls) for arc in function.arcs
        ]
        function.taken = [0] * len(function.arcs)
    return Notes(stamp, folder, functions)


def clear(of: Notes) -> None:
    """Set the counts of the graphs to zero."""
    for function in of.functions.values():
        function.taken = [0] * len(function.arcs)


def add_counts(of: Notes, data: bytes) -> None:
    """Add the counts of a ``.gcda`` file to the graphs of its notes. Raises ValueError for a file of other notes."""
    reader = _Reader(data, _DATA)
    if reader.word() != of.stamp:
        raise ValueError("counts of another compilation")
    if reader.major >= 12:
        reader.word()
    current: Function | None = None
    for tag, length, after in reader.records():
        if tag == _FUNCTION:
            current = of.functions.get((reader.word(), reader.word(), reader.word())) if length >= 12 else None
        elif tag == _COUNTS and current is not None and length > 0:
            counted = [i for i, arc in enumerate(current.arcs) if not arc.on_tree]
            found: dict[int, int] = {}
            for i in counted:
                if reader.at + 8 > after:
                    raise ValueError("counts are missing")
                found[i] = reader.count()
            for i, count in enumerate(_solved(current, found)):
                current.taken[i] += count


def _solved(function: Function, known: dict[int, int]) -> list[int]:
    """Return how often each arc was taken, from those that are counted: what enters a block also leaves it."""
    arcs, counts = function.arcs, dict(known)
    into: list[set[int]] = [set() for _ in range(function.blocks)]
    out: list[set[int]] = [set() for _ in range(function.blocks)]
    for i, arc in enumerate(arcs):
        out[arc.source].add(i)
        into[arc.target].add(i)
    sums = [[0, 0] for _ in range(function.blocks)]
    missing = [[set(into[b]), set(out[b])] for b in range(function.blocks)]

    def settle(i: int) -> None:
        arc = arcs[i]
        missing[arc.source][1].discard(i)
        missing[arc.target][0].discard(i)
        sums[arc.source][1] += counts[i]
        sums[arc.target][0] += counts[i]

    for i in known:
        settle(i)
    waiting = list(range(function.blocks))
    while waiting:
        block = waiting.pop()
        # the entry has no way in, and the exit none out
        total: int | None = None
        for side in (0, 1):
            ways = into[block] if side == 0 else out[block]
            if ways and not missing[block][side]:
                total = sums[block][side]
        for side in (0, 1):
            if total is not None and len(missing[block][side]) == 1:
                (i,) = missing[block][side]
                counts[i] = max(total - sums[block][side], 0)
                settle(i)
                waiting += [arcs[i].source, arcs[i].target]
    return [counts.get(i, 0) for i in range(len(arcs))]
