"""Blocks of a candidate's C and C++ that did not run, from the graphs and counts of its second build."""

from __future__ import annotations

import os
import re
import stat
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from kernellab.verifier.coverage import gcov
from kernellab.verifier.coverage.build import FOLDER

#: largest number of compiled files, and of folder entries looked at for them
_MOST_FILES, _MOST_ENTRIES = 64, 20000
#: shortest text of a line by which a generated file is found in the source
_LONG = 8
_CATCH = re.compile(r"\bcatch\b")


@dataclass(frozen=True)
class Gap:
    """Code of ``file`` that did not run: its lines, or a part of them where other code of the line ran (``part``).
    ``guard``: the line with the condition that decided against it; 0 where nothing of its function ran."""

    file: str
    lines: tuple[int, ...]
    guard: int
    part: bool


class Compiled(NamedTuple):
    """One compiled file: the path of its counts, and its notes."""

    counts: Path
    notes: gcov.Notes


class Line(NamedTuple):
    """A line of a file of the candidate's."""

    file: str
    number: int


class Way(NamedTuple):
    """A way between two blocks: the number of the compiled file, the function, and the number of the arc in it."""

    compiled: int
    function: gcov.FunctionKey
    arc: int


def compiled(scratch: Path) -> list[Compiled]:
    """Return what was compiled below ``scratch``."""
    files: list[Compiled] = []
    entries = 0
    for folder, folders, names in os.walk(scratch):
        folders[:] = [name for name in folders if name != FOLDER]
        entries += len(folders) + len(names)
        for name in names:
            if name.endswith(".gcno") and len(files) < _MOST_FILES:
                path = Path(folder, name)
                files.append(Compiled(path.with_suffix(".gcda"), gcov.read_notes(plain(path))))
        if entries > _MOST_ENTRIES:
            break
    return files


def plain(path: Path, most: int = 1 << 26) -> bytes:
    """Return the contents of a regular file of a worker. Raises ValueError for another, OSError if there is none."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise ValueError(f"{path.name} is not a regular file")
        data = file.read(most + 1)
    if len(data) > most:
        raise ValueError(f"{path.name} is too large")
    return data


class Places:
    """The lines of a candidate's files, by the names that a compiler has for them. Lines of a generated file are found
    by their text."""

    def __init__(self, scratch: Path, files: Mapping[str, str], left_out: Iterable[str] = ()) -> None:
        self.scratch, self.files = scratch, files
        skipped = set(left_out)
        self.texts = {name: text.split("\n") for name, text in files.items() if text not in skipped}
        #: whether code of the candidate's own runs after an exception
        self.catches = any(_CATCH.search(text) for text in files.values() if text not in skipped)
        self._maps: dict[str, dict[int, Line]] = {}

    def of(self, folder: str, file: str, line: int) -> Line | None:
        """Return the candidate's file and line of a compiler's; None if the code is not the candidate's."""
        path = os.path.normpath(os.path.join(folder, file))
        if path not in self._maps:
            self._maps[path] = self._map(path)
        return self._maps[path].get(line)

    def text(self, file: str, line: int) -> str:
        """Return the text of a line, without the spaces around it; "" where there is none."""
        lines = self.texts.get(file, [])
        return lines[line - 1].strip() if 0 < line <= len(lines) else ""

    def _map(self, path: str) -> dict[int, Line]:
        """The candidate's line of each line of a file."""
        root = f"{self.scratch / 'src'}/"
        name = path.removeprefix(root)
        if path.startswith(root) and name in self.files:
            return {i + 1: Line(name, i + 1) for i in range(len(self.texts.get(name, ())))}
        if not path.startswith(f"{self.scratch}/"):
            return {}
        try:
            generated = plain(Path(path)).decode(errors="replace").split("\n")
        except (OSError, ValueError):
            return {}
        return self._aligned(generated)

    def _aligned(self, generated: Sequence[str]) -> dict[int, Line]:
        """The candidate's line of each line of a generated file, by the shifts at which most of their texts agree."""
        result: dict[int, Line] = {}
        for name, lines in self.texts.items():
            where: dict[str, list[int]] = {}
            for i, line in enumerate(lines):
                where.setdefault(line.strip(), []).append(i)
            long_lines = ((j, line.strip()) for j, line in enumerate(generated) if len(line.strip()) >= _LONG)
            shifts = Counter(i - j for j, text in long_lines for i in where.get(text, ()))
            for shift, _ in shifts.most_common(8):
                for j, line in enumerate(generated):
                    if line.strip() and 0 <= j + shift < len(lines) and lines[j + shift].strip() == line.strip():
                        result.setdefault(j + 1, Line(name, j + shift + 1))
        return result


class _Missed(NamedTuple):
    """A line that did not run, as in :class:`Gap`."""

    line: Line
    guard: int
    part: bool


def gaps(files: Sequence[Compiled], places: Places) -> list[Gap]:
    """Return what did not run, without code that only raises or ends the process."""
    missed: list[_Missed] = []
    ran: set[Line] = set()
    for _, notes in files:
        for function in notes.functions.values():
            inside = _Inside(function, notes.folder, places)
            ran |= inside.ran_lines()
            missed += inside.missed()
    merged: dict[tuple[str, int, bool], set[int]] = {}
    for line, guard, part in missed:
        is_part = part or line in ran
        if is_part and not guard:
            # another instance of a template ran
            continue
        merged.setdefault((line.file, guard, is_part), set()).add(line.number)
    return [Gap(file, tuple(sorted(lines)), guard, part) for (file, guard, part), lines in merged.items()]


def near(files: Sequence[Compiled]) -> set[Way]:
    """Return the ways into conditions that have decided one way only."""
    ways = set[Way]()
    for number, (_, notes) in enumerate(files):
        for key, function in notes.functions.items():
            ran = function.ran()
            pairs = list(zip(function.arcs, function.taken, strict=True))
            one_sided = {a.source for a, taken in pairs if not taken and not a.fake and ran[a.source]}
            ways |= {Way(number, key, i) for i, (a, taken) in enumerate(pairs) if taken and a.target in one_sided}
    return ways


class _Guard(NamedTuple):
    """The line of a condition that decided against a block; is it directly before the block?"""

    line: Line
    is_direct: bool


class _Inside:
    """One function's blocks, with the lines of the candidate's files."""

    def __init__(self, function: gcov.Function, folder: str, places: Places) -> None:
        self.function, self.places = function, places
        self.count = function.ran()
        self.lines: dict[int, list[Line]] = {}
        self.conditions: dict[int, Line] = {}
        for block, lines in function.lines.items():
            own = [at for file, line in lines if (at := places.of(folder, file, line)) is not None]
            if own:
                self.lines[block] = own
            # a condition stands at a block's end; a header's may be inlined after the candidate's lines
            if lines and (last := places.of(folder, *lines[-1])) is not None:
                self.conditions[block] = last
        self.real: list[list[int]] = [[] for _ in range(function.blocks)]
        self.before: list[list[int]] = [[] for _ in range(function.blocks)]
        for arc in function.arcs:
            if self._counts(arc):
                self.real[arc.source].append(arc.target)
                self.before[arc.target].append(arc.source)
        # blocks from which the function may return, and that it reaches without an exception
        self.ends = _reached(self.before, 1) & _reached(self.real, 0)

    def _counts(self, arc: gcov.Arc) -> bool:
        """Is an arc a way that an input should take? An exception is one where the candidate catches some."""
        return not arc.fake and (self.places.catches or not arc.throws)

    def ran_lines(self) -> set[Line]:
        return {at for block, lines in self.lines.items() if self.count[block] for at in lines}

    def missed(self) -> Iterator[_Missed]:
        """Yield what did not run."""
        blocks = range(2, self.function.blocks)
        unreached = {b for b in blocks if not self.count[b] and b in self.ends}
        for block in sorted(unreached):
            guard = self._guard(block)
            for line in self.lines.get(block, ()):
                is_same_file = guard is not None and guard.line.file == line.file
                yield _Missed(line, guard.line.number if guard is not None and is_same_file else 0, False)
            if block not in self.lines and guard is not None and guard.is_direct and not self._of_compiler(guard.line):
                yield _Missed(guard.line, guard.line.number, True)
        yield from self._one_sided(unreached)

    def _one_sided(self, unreached: set[int]) -> Iterator[_Missed]:
        """Yield the conditions that decided one way only, where the other way leads to code that ran."""
        # OpenMP's loop over a thread's share may have one iteration however many threads there are
        is_share = "._omp_fn." in self.function.name
        for arc, taken in zip(self.function.arcs, self.function.taken, strict=True):
            if is_share and arc.target <= arc.source:
                continue
            decided = self.count[arc.source] and not taken and self._counts(arc) and len(self.real[arc.source]) > 1
            if not decided or arc.target not in self.ends or arc.target in unreached:
                continue
            condition = self.conditions.get(arc.source)
            if condition is not None and not self._of_compiler(condition):
                yield _Missed(condition, condition.number, True)

    def _of_compiler(self, line: Line) -> bool:
        """Is a condition the compiler's, as in the shares of a loop's threads?"""
        return self.places.text(line.file, line.number).startswith(("#", "_Pragma"))

    def _guard(self, block: int) -> _Guard | None:
        """The nearest condition before a block that decided against it."""
        seen, waiting, is_direct = {block}, [block], True
        while waiting:
            before: list[int] = []
            for one in waiting:
                for source in self.before[one]:
                    if self.count[source] and source in self.lines:
                        return _Guard(self.lines[source][-1], is_direct and source in self.conditions)
                    if source not in seen:
                        seen.add(source)
                        before.append(source)
            waiting, is_direct = before, False
        return None


def _reached(ways: Sequence[Sequence[int]], start: int) -> set[int]:
    """The blocks that are reached from ``start`` by these ways."""
    reached, pending = {start}, [start]
    while pending:
        for block in ways[pending.pop()]:
            if block not in reached:
                reached.add(block)
                pending.append(block)
    return reached
