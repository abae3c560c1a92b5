"""Blocks of a candidate's C and C++ that did not run, from the graphs and counts of its second build."""

from __future__ import annotations

import os
import re
import stat
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

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


def compiled(scratch: Path) -> list[tuple[Path, gcov.Notes]]:
    """Return the notes of what was compiled below ``scratch``, with the paths of their counts."""
    found: list[tuple[Path, gcov.Notes]] = []
    entries = 0
    for folder, folders, names in os.walk(scratch):
        folders[:] = [name for name in folders if name != FOLDER]
        entries += len(folders) + len(names)
        for name in names:
            if name.endswith(".gcno") and len(found) < _MOST_FILES:
                path = Path(folder, name)
                found.append((path.with_suffix(".gcda"), gcov.notes(plain(path))))
        if entries > _MOST_ENTRIES:
            break
    return found


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
        self._maps: dict[str, dict[int, tuple[str, int]]] = {}

    def of(self, folder: str, file: str, line: int) -> tuple[str, int] | None:
        """Return the candidate's file and line of a compiler's; None if the code is not the candidate's."""
        path = os.path.normpath(os.path.join(folder, file))
        if path not in self._maps:
            self._maps[path] = self._map(path)
        return self._maps[path].get(line)

    def text(self, file: str, line: int) -> str:
        """Return the text of a line, without the spaces around it; "" where there is none."""
        lines = self.texts.get(file, [])
        return lines[line - 1].strip() if 0 < line <= len(lines) else ""

    def _map(self, path: str) -> dict[int, tuple[str, int]]:
        root = f"{self.scratch / 'src'}/"
        name = path.removeprefix(root)
        if path.startswith(root) and name in self.files:
            return {i + 1: (name, i + 1) for i in range(len(self.texts.get(name, ())))}
        if not path.startswith(f"{self.scratch}/"):
            return {}
        try:
            made = plain(Path(path)).decode(errors="replace").split("\n")
        except (OSError, ValueError):
            return {}
        return self._aligned(made)

    def _aligned(self, made: Sequence[str]) -> dict[int, tuple[str, int]]:
        result: dict[int, tuple[str, int]] = {}
        for name, lines in self.texts.items():
            where: dict[str, list[int]] = {}
            for i, line in enumerate(lines):
                where.setdefault(line.strip(), []).append(i)
            shifts = Counter(
                i - j for j, line in enumerate(made) if len(line.strip()) >= _LONG for i in where.get(line.strip(), ())
            )
            for shift, _ in shifts.most_common(8):
                for j, line in enumerate(made):
                    if line.strip() and 0 <= j + shift < len(lines) and lines[j + shift].strip() == line.strip():
                        result.setdefault(j + 1, (name, j + shift + 1))
        return result


def gaps(found: Sequence[tuple[Path, gcov.Notes]], places: Places) -> list[Gap]:
    """Return what did not run, without code that only raises or ends the process."""
    missed: list[tuple[str, int, int, bool]] = []
    ran: set[tuple[str, int]] = set()
    for _, notes in found:
        for function in notes.functions.values():
            inside = _Inside(function, notes.folder, places)
            ran |= inside.ran_lines()
            missed += inside.missed()
    merged: dict[tuple[str, int, bool], set[int]] = {}
    for file, line, guard, part in missed:
        part = part or (file, line) in ran
        if part and not guard:
            # another instance of a template ran
            continue
        merged.setdefault((file, guard, part), set()).add(line)
    return [Gap(file, tuple(sorted(lines)), guard, part) for (file, guard, part), lines in merged.items()]


def near(found: Sequence[tuple[Path, gcov.Notes]]) -> set[tuple[int, tuple[int, int, int], int]]:
    """Return the ways into conditions that have decided one way only: number of the compiled file, key of the function,
    number of the arc."""
    result = set[tuple[int, tuple[int, int, int], int]]()
    for number, (_, notes) in enumerate(found):
        for key, function in notes.functions.items():
            ran = function.ran()
            pairs = list(zip(function.arcs, function.taken, strict=True))
            decides = {a.source for a, taken in pairs if not taken and not a.fake and ran[a.source]}
            result |= {(number, key, i) for i, (a, taken) in enumerate(pairs) if taken and a.target in decides}
    return result


class _Inside:
    """One function's blocks, with the lines of the candidate's files."""

    def __init__(self, function: gcov.Function, folder: str, places: Places) -> None:
        self.function, self.places = function, places
        self.count = function.ran()
        self.lines: dict[int, list[tuple[str, int]]] = {}
        self.conditions: dict[int, tuple[str, int]] = {}
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

    def ran_lines(self) -> set[tuple[str, int]]:
        return {at for block, lines in self.lines.items() if self.count[block] for at in lines}

    def missed(self) -> Iterator[tuple[str, int, int, bool]]:
        """Yield file, line and guard of what did not run, and whether it is a part of its line only."""
        blocks = range(2, self.function.blocks)
        unreached = {b for b in blocks if not self.count[b] and b in self.ends}
        for block in sorted(unreached):
            guard = self._guard(block)
            for file, line in self.lines.get(block, ()):
                yield file, line, guard[1] if guard and guard[0] == file else 0, False
            if block not in self.lines and guard is not None and guard[2] and not self._of_compiler(guard):
                yield guard[0], guard[1], guard[1], True
        # OpenMP's loop over a thread's share may have one iteration however many threads there are
        is_share = "._omp_fn." in self.function.name
        for arc, taken in zip(self.function.arcs, self.function.taken, strict=True):
            if is_share and arc.target <= arc.source:
                continue
            decided = self.count[arc.source] and not taken and self._counts(arc) and len(self.real[arc.source]) > 1
            if decided and arc.target in self.ends and arc.target not in unreached and arc.source in self.conditions:
                file, line = self.conditions[arc.source]
                if not self._of_compiler((file, line)):
                    yield file, line, line, True

    def _of_compiler(self, at: tuple[str, int] | tuple[str, int, bool]) -> bool:
        """Is a condition the compiler's, as in the shares of a loop's threads?"""
        return self.places.text(at[0], at[1]).startswith(("#", "_Pragma"))

    def _guard(self, block: int) -> tuple[str, int, bool] | None:
        """File and line of the nearest condition before a block that decided against it, and whether it is directly
        before it."""
        seen, waiting, near = {block}, [block], True
        while waiting:
            after: list[int] = []
            for one in waiting:
                for source in self.before[one]:
                    if self.count[source] and source in self.lines:
                        return (*self.lines[source][-1], near and source in self.conditions)
                    if source not in seen:
                        seen.add(source)
                        after.append(source)
            waiting, near = after, False
        return None


def _reached(ways: Sequence[Sequence[int]], start: int) -> set[int]:
    found, waiting = {start}, [start]
    while waiting:
        for block in ways[waiting.pop()]:
            if block not in found:
                found.add(block)
                waiting.append(block)
    return found
