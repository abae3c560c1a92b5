"""GCC's coverage notes (``.gcno``) and counts (``.gcda``): the flow graph of each function, with how often it ran.

The program gcov leaves out functions that the compiler made, so also the bodies of OpenMP's parallel regions, and its
report has no graph, by which code that only raises is known. Both files come from a process that ran the candidate:
whatever they hold, reading them raises nothing but ValueError.

A file is a head and records of a tag, a length and words; the notes of one function are several records::

    FUNCTION  identifier, two checksums, name, ..., file, first line, column, last line
    BLOCKS    number of blocks
    ARCS      source block, then target and flags of each arc
    LINES     block, then lines, with a name where the file changes

Not all arcs are counted: those on a spanning tree follow from the flow (:func:`_solved`).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

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


class FunctionKey(NamedTuple):
    """What identifies a function in notes and counts."""

    identifier: int
    line_checksum: int
    graph_checksum: int


@dataclass(frozen=True)
class Notes:
    """One compiled file: the folder in which it was compiled, and its functions."""

    stamp: int
    folder: str
    functions: Mapping[FunctionKey, Function]

    def clear(self) -> None:
        """Set the counts of the graphs to zero."""
        for function in self.functions.values():
            function.taken = [0] * len(function.arcs)


class _Record(NamedTuple):
    """The head of a record: its tag, its length in bytes (negative: the values are zeros and left out) and its end."""

    tag: int
    length: int
    end: int


class _Reader:
    """Reads the words, texts and records of one file."""

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

    def key(self) -> FunctionKey:
        return FunctionKey(self.word(), self.word(), self.word())

    def records(self) -> Iterator[_Record]:
        """Yield the head of each record, at the beginning of its words."""
        while self.at + 8 <= self.end:
            tag = self.word()
            if not tag:
                return
            length = self.signed() * self.unit
            after = self.at + max(length, 0)
            if after > self.end:
                raise ValueError("a file of GCC's coverage is cut off")
            yield _Record(tag, length, after)
            self.at = after


def read_notes(data: bytes) -> Notes:
    """Return the flow graphs of a ``.gcno`` file of GCC 9 or later. Raises ValueError for another file."""
    reader = _Reader(data, _NOTE)
    if reader.major < 9:
        raise ValueError(f"notes of version {reader.major}")
    stamp = reader.word()
    if reader.major >= 12:
        reader.word()
    folder = reader.text()
    reader.word()
    functions: dict[FunctionKey, Function] = {}
    current: Function | None = None
    for record in reader.records():
        if record.tag == _FUNCTION and record.length > 0:
            key = reader.key()
            functions[key] = current = _read_function(reader)
        elif current is not None and record.tag == _BLOCKS:
            current.blocks = min(reader.word(), _MOST_BLOCKS)
        elif current is not None and record.tag == _ARCS:
            _read_arcs(reader, record, current)
        elif current is not None and record.tag == _LINES:
            _read_lines(reader, record, current)
    for function in functions.values():
        # only a block that ends in a call has a fake arc, and such a block decides nothing
        calls = {arc.source for arc in function.arcs if arc.fake}
        function.arcs = [
            replace(arc, throws=arc.throws and not arc.fake and arc.source in calls) for arc in function.arcs
        ]
    notes = Notes(stamp, folder, functions)
    notes.clear()
    return notes


def _read_function(reader: _Reader) -> Function:
    name = reader.text()
    reader.word()
    file, first = reader.text(), reader.word()
    reader.word()
    return Function(name, file, first, reader.word(), 0)


def _read_arcs(reader: _Reader, record: _Record, function: Function) -> None:
    source = reader.word()
    while reader.at + 8 <= record.end:
        target, flags = reader.word(), reader.word()
        if max(source, target) >= function.blocks:
            raise ValueError("an arc leads to no block")
        arc = Arc(source, target, bool(flags & _FAKE), bool(flags & _ON_TREE), not flags & _FALLS_THROUGH)
        function.arcs.append(arc)


def _read_lines(reader: _Reader, record: _Record, function: Function) -> None:
    block, file = reader.word(), function.file
    lines = function.lines.setdefault(block, [])
    while reader.at + 4 <= record.end:
        line = reader.word()
        if line:
            lines.append((file, line))
        elif name := reader.text():
            file = name
        else:
            break


def add_counts(notes: Notes, data: bytes) -> None:
    """Add the counts of a ``.gcda`` file to the graphs of its notes. Raises ValueError for a file of other notes."""
    reader = _Reader(data, _DATA)
    if reader.word() != notes.stamp:
        raise ValueError("counts of another compilation")
    if reader.major >= 12:
        reader.word()
    current: Function | None = None
    for record in reader.records():
        if record.tag == _FUNCTION:
            current = notes.functions.get(reader.key()) if record.length >= 12 else None
        elif record.tag == _COUNTS and current is not None and record.length > 0:
            counts: dict[int, int] = {}
            for i in (i for i, arc in enumerate(current.arcs) if not arc.on_tree):
                if reader.at + 8 > record.end:
                    raise ValueError("counts are missing")
                counts[i] = reader.count()
            for i, count in enumerate(_solved(current, counts)):
                current.taken[i] += count


class _Side:
    """The arcs into a block, or out of it: their numbers, those without a count yet, and the sum of the others."""

    def __init__(self) -> None:
        self.arcs: set[int] = set()
        self.missing: set[int] = set()
        self.sum = 0

    def add(self, arc: int) -> None:
        self.arcs.add(arc)
        self.missing.add(arc)

    def settle(self, arc: int, count: int) -> None:
        self.missing.discard(arc)
        self.sum += count


def _solved(function: Function, counted: Mapping[int, int]) -> list[int]:
    """Return how often each arc was taken, from those that are counted: what enters a block also leaves it."""
    arcs, counts = function.arcs, dict(counted)
    into, out = ([_Side() for _ in range(function.blocks)] for _ in range(2))
    for i, arc in enumerate(arcs):
        out[arc.source].add(i)
        into[arc.target].add(i)
    for i, count in counted.items():
        out[arcs[i].source].settle(i, count)
        into[arcs[i].target].settle(i, count)
    pending = list(range(function.blocks))
    while pending:
        block = pending.pop()
        sides = into[block], out[block]
        # the entry has no arc into it, and the exit none out
        known = [side.sum for side in sides if side.arcs and not side.missing]
        for side in sides if known else ():
            if len(side.missing) == 1:
                (i,) = side.missing
                counts[i] = max(known[-1] - side.sum, 0)
                out[arcs[i].source].settle(i, counts[i])
                into[arcs[i].target].settle(i, counts[i])
                pending += [arcs[i].source, arcs[i].target]
    return [counts.get(i, 0) for i in range(len(arcs))]
