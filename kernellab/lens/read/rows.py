"""Lines of a compiler's text with their places, and their conversion to a level of one source file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import NamedTuple

from kernellab.lens.records import Level, Link


class Place(NamedTuple):
    """A line of a file, by the file's name without its folder."""

    file: str
    line: int


NOWHERE: frozenset[Place] = frozenset()


@dataclass(frozen=True)
class Row:
    """A line and its places in the source: where it was written, and where that was inlined."""

    text: str
    places: frozenset[Place] = NOWHERE


def place(file: str, line: int | str) -> Place:
    return Place(PurePath(file).name, int(line))


@dataclass(frozen=True)
class Shown:
    """The source's text to which levels are linked; ``begins`` has the line of each file's first line, less one.

    Several files with device code are concatenated; code of a Python string begins in the middle."""

    file: str
    text: str
    begins: Mapping[str, int]

    def line(self, at: Place) -> int | None:
        """Return the line of the text at a place; None for places elsewhere."""
        begin = self.begins.get(at.file)
        return None if begin is None or at.line < 1 else begin + at.line


def level(name: str, parts: Sequence[Sequence[Row]], shown: Shown, language: str, title: str) -> Level:
    """A level of the kernels' ``parts``, linked to ``shown``."""
    rows: list[Row] = []
    for part in parts:
        rows += [*([Row("")] if rows else []), *_trimmed(part)]
    last = shown.text.count("\n") + 1
    links = {
        Link(line, number)
        for number, row in enumerate(rows, 1)
        for at in row.places
        if (line := shown.line(at)) is not None and line <= last
    }
    return Level(name, "\n".join(row.text for row in rows), tuple(sorted(links)), language, title)


def _trimmed(rows: Iterable[Row]) -> list[Row]:
    """Return the rows without empty lines at the ends, and with one instead of several."""
    kept: list[Row] = []
    for row in rows:
        if row.text.strip() or (kept and kept[-1].text.strip()):
            kept.append(row)
    while kept and not kept[-1].text.strip():
        kept.pop()
    return kept
