"""TTIR and TTGIR: MLIR's text with ``loc(...)`` behind each operation (mlir.llvm.org/docs/Dialects/Builtin)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kernellab.lens.read.rows import Place, Row, place

_DEFINED = re.compile(r"^(#loc\d*) = loc\((.*)\)\s*$")
_LITERAL = re.compile(r'"((?:[^"\\]|\\.)*)":(\d+):\d+')
_NAMED = re.compile(r"#loc\d*")


def rows(text: str) -> list[Row]:
    """The text's rows without locations."""
    defined = {match[1]: match[2] for line in text.splitlines() if (match := _DEFINED.match(line))}
    locations: dict[str, frozenset[Place]] = {}

    def places(location: str, below: int = 0) -> Iterator[Place]:
        for file, line in _LITERAL.findall(location):
            yield place(file, line)
        for name in _NAMED.findall(location):
            if name not in locations and below < 64:
                locations[name] = frozenset()
                locations[name] = frozenset(places(defined.get(name, ""), below + 1))
            yield from locations.get(name, ())

    read = []
    for line in text.splitlines():
        if _DEFINED.match(line):
            continue
        bare, location = _without(line)
        read.append(Row(bare, frozenset(at for one in location for at in places(one))))
    return read


def _without(line: str) -> tuple[str, list[str]]:
    """Return the line without ``loc(...)``, and their contents. A location may contain brackets, also quoted ones."""
    bare, location, at = "", [], 0
    while (start := line.find(" loc(", at)) >= 0:
        end = _closed(line, start + 4)
        if end is None:
            break
        bare += line[at:start]
        location.append(line[start + 5 : end])
        at = end + 1
    return bare + line[at:], location


def _closed(line: str, start: int) -> int | None:
    depth, quoted, at = 0, False, start
    while at < len(line):
        char = line[at]
        if quoted:
            at += char == "\\"
            quoted = char != '"'
        elif char == '"':
            quoted = True
        elif char in "()":
            depth += 1 if char == "(" else -1
            if depth == 0:
                return at
        at += 1
    return None
