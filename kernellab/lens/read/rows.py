"""Lines of a compiler's text with their places, and how they become a level of one source file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from kernellab.lens.records import Level, Link

#: a file's name and a line of it
Place = tuple[str, int]
NOWHERE: frozenset[Place] = frozenset()


@dataclass(frozen=True)
class Row:
    """A line, and every place that it comes from: where it was written, and where that was inlined."""

    text: str
    places: frozenset[Place] = NOWHERE


def place(file: str, line: int | str) -> Place:
    return PurePath(file).name, int(line)


@dataclass(frozen=True)
class Shown:
    """The source's text that levels are linked to: ``begins`` says which of its lines a file's first line is, less one.

    Where several files hold device code they stand one below the other; code of a Python string begins in its middle.
    """

    file: str
    text: str
    begins: Mapping[str, int]

    def line(self, at: Place) -> int | None:
        """The line of the text that a place is, None for places elsewhere."""
        begin = self.begins.get(at[0])
        return None if begin is None or at[1] < 1 else begin + at[1]


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
    """Without empty lines at the ends, and with one where there were several."""
    kept: list[Row] = []
    for row in rows:
        if row.text.strip() or (kept and kept[-1].text.strip()):
            kept.append(row)
    while kept and not kept[-1].text.strip():
        kept.pop()
    return kept
